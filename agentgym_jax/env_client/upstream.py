"""What differs between the environments of AgentGym, as a table.

Facts of AgentGym's servers and clients (arXiv:2406.04151, arXiv:2509.08755): names of
fields, which number is the score, when a task counts as solved. One client reads the
table, so a further environment is a further row and not a further client; one whose server
has `/spec` needs no row at all. docs/agentgym_environments.md shows the table to people.
"""

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Any, Literal

from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_jax.env_client import functions, instructions
from agentgym_jax.env_client.actions import ActionFormat, ActionRules
from agentgym_jax.env_client.calls import Function

_ABOVE_ZERO = 1e-9


class Dialect(enum.StrEnum):
    """Name of the session field; `id` is created as an object, `env_idx` as a bare integer too."""

    ID = "id"
    ENV_IDX = "env_idx"


@dataclasses.dataclass(frozen=True)
class Success:
    """When the answer to a step says that the task is solved: `field` is at least `least`.

    Attributes:
      field: which number counts.
      least: in its own unit.
      needs_done: the episode must have ended too.
    """

    field: Literal["reward", "score"] = "reward"
    least: float = 1.0
    needs_done: bool = False

    def __call__(self, reward: float, score: float, done: bool) -> bool:
        """Whether the task is solved, from the numbers of a step as the server sent them."""
        value = reward if self.field == "reward" else score
        return value >= self.least and (done or not self.needs_done)

    def __str__(self) -> str:
        bound = "> 0" if self.least == _ABOVE_ZERO else f">= {self.least:g}"
        return f"{'done, ' if self.needs_done else ''}{self.field} {bound}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Upstream:
    """Facts about one environment.

    Attributes:
      environment: its name and the prefix of its item ids.
      dialect: name of the session field.
      path_prefix: put between the base URL and the route, such as `/maze`.
      create_body: body of `POST /create`.
      reset_key: field of the reset request that holds the task index.
      reset_extra: further constant fields of the reset request.
      reset_fields: fields of the answer to a reset that make up the first observation, one
        under the other; empty: it is asked for with `GET /observation`.
      reset_error: regular expression of a text in place of an observation that says that the
        reset failed, although the status is 200.
      vocabulary_route: route that lists, before the first reset, the words which every
        first observation must show; empty if there is none.
      observation_field: field of a step's answer that holds the text.
      actions_field: field of every answer that lists the possible actions, which are then
        shown under the text; empty if there is none.
      score_fields: fields of a step's answer that AgentGym takes for the result of an episode;
        the first that an answer has counts. After a reset the score is 0.
      done_field: field of a step's answer that says that the episode ended.
      reward_at_end: a reward counts only in the answer that ends the episode.
      reward_scale: brings reward and score to a unit in which 1 is the best.
      succeeded: whether a step solved the task.
      refusal: regular expression; how an answer begins that says that an action cannot be
        done. Empty if nothing says so.
      stateless: regular expression; beginning of an answer that shows no state of the world,
        though the action was not refused. Empty if there is none.
      actions: how a model's text is read, in the environment's own format.
      functions: its actions as functions; empty if AgentGym has no adapter for it.
      has_close: AgentGym's server has a close route.
      num_tasks: tasks to draw from where a server lists none.
      max_turns: turns after which AgentGym stops an episode in evaluation.
      instructions: what the agent is told in the own format, for servers without `/spec`.
    """

    environment: str
    dialect: Dialect
    path_prefix: str = ""
    create_body: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reset_key: str
    reset_extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reset_fields: tuple[str, ...] = ("observation",)
    reset_error: str = ""
    vocabulary_route: str = ""
    observation_field: str = "observation"
    actions_field: str = ""
    score_fields: tuple[str, ...] = ("reward",)
    done_field: str = "done"
    reward_at_end: bool = False
    reward_scale: float = 1.0
    succeeded: Success = Success()
    refusal: str
    stateless: str = ""
    actions: ActionRules
    functions: Mapping[str, Function] = dataclasses.field(default_factory=dict)
    has_close: bool
    num_tasks: int
    max_turns: int
    instructions: str

    @property
    def formats(self) -> tuple[ActionFormat, ...]:
        """Formats in which an action can be written; the first is the environment's own."""
        found = [self.actions.format]
        if self.actions.format is ActionFormat.REACT:
            found.append(ActionFormat.REACT_OR_BARE)
        if self.functions:
            found += [ActionFormat.FUNCTION_CALLING, ActionFormat.CODE_AS_ACTION]
        return tuple(found)

    def in_format(self, action_format: str | None) -> "Upstream":
        """The same facts for a model that writes its actions in another format.

        Args:
          action_format: value of an ActionFormat; None is the environment's own.

        Raises:
          ValueError: the environment does not have this format.
        """
        if action_format is None or action_format == self.actions.format:
            return self
        if action_format not in self.formats:
            raise ValueError(
                f"{self.environment} has no action format {action_format!r}, "
                f"expected one of {[str(f) for f in self.formats]}"
            )
        chosen = ActionFormat(action_format)
        if chosen is ActionFormat.REACT_OR_BARE:
            return dataclasses.replace(
                self, actions=dataclasses.replace(self.actions, format=chosen)
            )
        rules = ActionRules(
            chosen,
            dropped="",
            max_characters=self.actions.max_characters,
            functions=self.functions,
        )
        text = instructions.instructions(self.environment, chosen)
        return dataclasses.replace(self, actions=rules, instructions=text)

    def served_by(self, spec: EnvironmentSpec) -> "Upstream":
        """The same facts about a server that says itself how it refuses and wants its actions.

        Raises:
          ValueError: the spec cannot be used.
        """
        said = from_spec(spec)
        own = self.actions.format
        own = ActionFormat.REACT if own is ActionFormat.REACT_OR_BARE else own
        is_own = said.actions.format is own
        succeeded = self.succeeded
        if succeeded == Success():  # a server of ours may shape the reward of what is right
            succeeded = Success(least=spec.success_score)
        return dataclasses.replace(
            self,
            refusal=said.refusal or self.refusal,
            actions=self.actions if is_own else said.actions,
            instructions=said.instructions,
            succeeded=succeeded,
        )

    def is_refusal(self, text: str) -> bool:
        """Whether an answer says that the action could not be done."""
        return bool(self.refusal) and re.match(self.refusal, text) is not None

    def shows_state(self, text: str) -> bool:
        """Whether an answer says in which state the world is."""
        return not self.stateless or re.match(self.stateless, text) is None


_SHORT = 500  # characters of the longest sensible action in the worlds
_LONG = 10_000  # of a text that is sent as a whole; our servers take as much

_REACT = ActionRules(ActionFormat.REACT, dropped="", max_characters=_SHORT)
_RAW = ActionRules(ActionFormat.RAW, dropped="", max_characters=_LONG)
# AgentGym's clients for TextCraft and BabyAI drop everything but letters, digits, commas and spaces.
_PLAIN_REACT = ActionRules(ActionFormat.REACT, dropped=r"[^A-Za-z0-9,\s]", max_characters=_SHORT)
_SQL_BLOCK = ActionRules(
    ActionFormat.RAW,
    dropped="",
    max_characters=_LONG,
    block=r"```sql(.*?)(?:```|\Z)",
    block_problem="No statement was found in this answer. Write it in a ```sql block.",
)
_ANY_BLOCK = ActionRules(
    ActionFormat.RAW,
    dropped="",
    max_characters=_LONG,
    block=r"```.+?```",
    block_problem="No action was found in this answer. Write it between ``` and ```.",
)


def _text(environment: str, rules: ActionRules) -> str:
    return instructions.instructions(environment, rules.format)


def _tool_set(environment: str, *, num_tasks: int, max_turns: int) -> Upstream:
    """AgentGym's tool server runs as five environments. Its reward is the best progress so far."""
    return Upstream(
        environment=environment,
        dialect=Dialect.ENV_IDX,
        create_body={"id": 0},
        reset_key="id",
        reset_fields=(),
        refusal=r"Format error|Observation: ERROR \|",
        actions=_RAW,
        has_close=False,
        num_tasks=num_tasks,
        max_turns=max_turns,
        instructions=_text(environment, _RAW),
    )


_ROWS = (
    Upstream(
        environment="textcraft",
        dialect=Dialect.ID,
        reset_key="data_idx",
        refusal=r"Could not |Wrong item format",
        actions=_PLAIN_REACT,
        has_close=True,
        num_tasks=544,
        max_turns=30,
        instructions=instructions.TEXTCRAFT,
    ),
    Upstream(
        environment="babyai",
        dialect=Dialect.ID,
        reset_key="data_idx",
        score_fields=("score",),
        # Not the score: the original keeps adding to it after a late success.
        succeeded=Success("reward", _ABOVE_ZERO, needs_done=True),
        # An empty view begins with "You cannot see any objects" and refuses nothing.
        refusal=r"The action is not recognized|You cannot (?!see any objects)",
        stateless=r"No change in state\.|You can take the following actions",
        actions=_PLAIN_REACT,
        has_close=True,
        # 100 seeds of 40 levels; the original serves any seed, AgentGym's item ids are below this.
        num_tasks=40 * 100,
        max_turns=20,
        instructions=instructions.BABYAI,
    ),
    Upstream(
        environment="sciworld",
        dialect=Dialect.ID,
        reset_key="data_idx",
        reset_fields=("task_description", "observation"),
        score_fields=("score",),
        reward_scale=0.01,
        succeeded=Success("score", 100.0),
        refusal=(
            r"No known action matches|Unknown action|You can't |The door is not open"
            r"|The .* isn't open|The .* can't be "
        ),
        actions=_REACT,
        functions=functions.SCIWORLD,
        has_close=True,
        num_tasks=4639,
        max_turns=30,
        instructions=_text("sciworld", _REACT),
    ),
    Upstream(
        environment="webshop",
        dialect=Dialect.ENV_IDX,
        reset_key="session_id",
        reset_fields=(),
        observation_field="state",
        refusal="",  # an impossible action shows the same page again
        actions=dataclasses.replace(_REACT, bare=r"search\[|click\["),
        functions=functions.WEBSHOP,
        has_close=False,
        num_tasks=6910,  # goals of the 1000 products that AgentGym's server loads
        max_turns=10,
        instructions=_text("webshop", _REACT),
    ),
    Upstream(
        environment="alfworld",
        dialect=Dialect.ID,
        reset_key="game",
        reset_extra={"world_type": "Text"},
        actions_field="available_actions",
        refusal=r"Nothing happen",
        actions=_REACT,
        functions=functions.ALFWORLD,
        has_close=False,
        num_tasks=2620,  # 0-2419 for training, 2420-2619 for testing
        max_turns=30,
        instructions=_text("alfworld", _REACT),
    ),
    Upstream(
        environment="maze",
        dialect=Dialect.ID,
        path_prefix="/maze",
        reset_key="game",
        refusal="",  # a move into a wall shows the same position again
        actions=_REACT,
        has_close=False,
        num_tasks=25,  # start cells; the server's 26th starts on the goal and cannot be played
        max_turns=15,
        instructions=_text("maze", _REACT),
    ),
    Upstream(
        environment="wordle",
        dialect=Dialect.ID,
        path_prefix="/wordle",
        reset_key="seed",
        vocabulary_route="/filtered_vocab",
        refusal=r"invalid word",
        actions=_REACT,
        has_close=False,
        num_tasks=980,  # any seed is a task; so many are AgentGym's
        max_turns=8,
        instructions=_text("wordle", _REACT),
    ),
    Upstream(
        environment="sqlgym",
        dialect=Dialect.ENV_IDX,
        reset_key="item_id",
        reset_fields=(),
        observation_field="state",
        refusal=r"(?!\[)",  # rows are a list; anything else is SQLite's error
        actions=_SQL_BLOCK,
        has_close=False,
        num_tasks=10_962,  # 0-9427 train, 9428-10961 dev
        max_turns=1,
        instructions=_text("sqlgym", _SQL_BLOCK),
    ),
    Upstream(
        environment="searchqa",
        dialect=Dialect.ENV_IDX,
        create_body={"id": 0},
        reset_key="id",
        reset_fields=(),
        refusal=r"Your previous action is invalid",
        actions=_RAW,
        has_close=True,
        num_tasks=221_328,
        max_turns=30,
        instructions=_text("searchqa", _RAW),
    ),
    Upstream(
        environment="webarena",
        dialect=Dialect.ENV_IDX,
        reset_key="idx",
        reset_extra={"seed": 0},
        reset_fields=(),
        reset_error=r"\s*(TimeoutError|Error)\b",
        done_field="terminated",
        reward_at_end=True,
        # Anything but a page is the text of the exception that the action raised.
        refusal=r"(?!OBSERVATION:|Tab \d)",
        actions=_ANY_BLOCK,
        has_close=True,
        num_tasks=812,
        max_turns=15,
        instructions=_text("webarena", _ANY_BLOCK),
    ),
    _tool_set("weather", num_tasks=343, max_turns=10),
    _tool_set("movie", num_tasks=238, max_turns=12),
    _tool_set("academia", num_tasks=20, max_turns=12),
    _tool_set("todo", num_tasks=155, max_turns=15),
    _tool_set("sheet", num_tasks=20, max_turns=15),
)

UPSTREAM: Mapping[str, Upstream] = {row.environment: row for row in _ROWS}


def from_spec(spec: EnvironmentSpec) -> Upstream:
    """Facts about an environment that the table does not have, from its server's `/spec`.

    Raises:
      ValueError: the spec cannot be used.
    """
    if spec.action_format not in (ActionFormat.REACT, ActionFormat.RAW):
        raise ValueError(f"action_format {spec.action_format!r} is neither 'react' nor 'raw'")
    if spec.max_score <= 0:
        raise ValueError(f"max_score {spec.max_score} is not positive")
    try:
        re.compile(spec.refusal)
    except re.error as error:
        raise ValueError(f"refusal {spec.refusal!r} is no regular expression: {error}") from error
    return Upstream(
        environment=spec.name,
        dialect=Dialect.ID,
        reset_key="data_idx",
        score_fields=("score", "reward"),
        succeeded=Success("score", spec.success_score, needs_done=True),
        refusal=spec.refusal,
        reward_scale=1.0 / spec.max_score,
        actions=ActionRules(ActionFormat(spec.action_format), dropped="", max_characters=_LONG),
        has_close=True,
        num_tasks=spec.num_tasks,
        max_turns=spec.max_turns,
        instructions=spec.instructions,
    )
