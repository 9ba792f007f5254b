"""What differs between the environments of AgentGym, as a table.

Facts of AgentGym's servers and clients (arXiv:2406.04151, arXiv:2509.08755): names of
fields, which number is the score, when a task counts as solved. One client reads the
table, so a further environment is a further row and not a further client.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping

from agentgym_jax.env_client.actions import ActionFormat, ActionRules


class Dialect(enum.StrEnum):
    """Name of the session field; `id` is created as an object, `env_idx` as a bare integer too."""

    ID = "id"
    ENV_IDX = "env_idx"


@dataclasses.dataclass(frozen=True)
class Upstream:
    """Facts about one environment.

    Attributes:
      environment: its name and the prefix of its item ids.
      dialect: name of the session field.
      reset_key: field of the reset request that holds the task index.
      score_field: field that AgentGym takes for the result of an episode. A reset that
        does not have it starts at 0.
      observation_field: field of an answer that holds the text.
      done_field: field of a step's answer that says that the episode ended.
      succeeded: `(reward, score, done) -> solved`.
      refusal: regular expression; how an answer begins that says that an action cannot be done.
      actions: how a model's text is read.
      path_prefix: put between the base URL and the route, such as `/maze`.
      has_close: the server has a close route.
      num_tasks: tasks to draw from where a server lists none.
      max_turns: turns after which AgentGym stops an episode in evaluation.
      instructions: what the agent is told, for servers without `/spec`.
    """

    environment: str
    dialect: Dialect
    reset_key: str
    score_field: str
    observation_field: str
    done_field: str
    succeeded: Callable[[float, float, bool], bool]
    refusal: str
    actions: ActionRules
    path_prefix: str
    has_close: bool
    num_tasks: int
    max_turns: int
    instructions: str


_TEXTCRAFT = """\
You are playing a crafting game in text form. The first message lists the crafting recipes \
that exist and names the item you have to make. You start with empty hands.

You can do three things:
get <number> <item> - take basic items from the world; this works only for items that cannot be crafted.
craft <number> <item> using <number> <item>, <number> <item> - make an item; copy the numbers and \
ingredients of a listed recipe and hold all of them first.
inventory - see what you are holding.

Some items have to be crafted from other crafted items. Where a recipe names a family of items, \
such as planks, any member of the family will do.

Answer every message in this form, with exactly one action:
Thought: what you want to do and why
Action: the action"""

_BABYAI = """\
You move through a world of rooms on a grid and have to reach the goal that the first message \
states. Each message describes what you can see from where you stand and lists the actions that \
are possible now.

Actions have these forms:
turn left, turn right, move forward - move by one step.
go to <colour> <object> <number> - walk to an object you can see.
pickup <colour> <object> <number> - walk to an object and take it; you can carry one.
drop - put down what you carry.
toggle - open, close or unlock the door right in front of you.
go through <colour> open door <number>, toggle and go through <colour> closed door <number>, \
toggle and go through <colour> locked door <number> - pass a door; a locked one needs its key.
check available actions - see the list again.

The number tells apart objects of the same colour and kind, counted from 1.

Answer every message in this form, with exactly one action from the list:
Thought: what you want to do and why
Action: the action"""

# AgentGym's clients for these two drop everything but letters, digits, commas and spaces.
_PLAIN_REACT = ActionRules(ActionFormat.REACT, dropped=r"[^A-Za-z0-9,\s]", max_characters=500)

UPSTREAM: Mapping[str, Upstream] = {
    "textcraft": Upstream(
        environment="textcraft",
        dialect=Dialect.ID,
        reset_key="data_idx",
        score_field="reward",
        observation_field="observation",
        done_field="done",
        succeeded=lambda reward, score, done: reward >= 1,
        refusal=r"Could not |Wrong item format",
        actions=_PLAIN_REACT,
        path_prefix="",
        has_close=True,
        num_tasks=544,
        max_turns=30,
        instructions=_TEXTCRAFT,
    ),
    "babyai": Upstream(
        environment="babyai",
        dialect=Dialect.ID,
        reset_key="data_idx",
        score_field="score",
        observation_field="observation",
        done_field="done",
        # Not the score: the original keeps adding to it after a late success.
        succeeded=lambda reward, score, done: done and reward > 0,
        # An empty view begins with "You cannot see any objects" and refuses nothing.
        refusal=r"The action is not recognized|You cannot (?!see any objects)",
        actions=_PLAIN_REACT,
        path_prefix="",
        has_close=True,
        # 100 seeds of 40 levels; the original serves any seed, AgentGym's item ids are below this.
        num_tasks=40 * 100,
        max_turns=20,
        instructions=_BABYAI,
    ),
}


def upstream_of(environment: str) -> Upstream:
    """The row of an environment.

    Raises:
      ValueError: the table has no such row.
    """
    if environment not in UPSTREAM:
        raise ValueError(
            f"environment {environment!r} is not known to the client; known: {sorted(UPSTREAM)}. "
            "Add a row to agentgym_jax/env_client/upstream.py or pass `upstream=`."
        )
    return UPSTREAM[environment]
