"""Differences between environment servers, such as field names, scores, actions and instructions.

A server with `/spec` describes itself; agentgym_originals/ describes AgentGym's servers.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentgym_envs.base.protocol import LARGEST_NUMBER, EnvironmentSpec, check_tools, is_solved
from agentgym_jax.client import instructions
from agentgym_jax.client.actions import ActionFormat, ActionRules
from agentgym_jax.client.calls import Function

# maximum length of an action in characters; this project's servers have the same limit
MAX_TEXT_CHARACTERS = 10_000


@dataclasses.dataclass(frozen=True)
class Success:
    """Condition under which a step solves the task.

    The value of `field` is at least `least`. With `needs_done`, the episode must also have ended.
    """

    field: Literal["reward", "score"] = "reward"
    least: float = 1.0
    needs_done: bool = False

    def __call__(self, reward: float, score: float, done: bool) -> bool:
        """Returns True if the task is solved, given the values of a step as sent by the server."""
        value = reward if self.field == "reward" else score
        return is_solved(value, self.least) and (done or not self.needs_done)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """Facts about one environment.

    Attributes:
      environment: Name of the environment and prefix of its item ids.
      session_field: Name of the field that holds the session id. With `env_idx`, the answer to
        `/create` may be a bare integer.
      path_prefix: Path between the base URL and the route, such as `/maze`.
      create_body: Body of `POST /create`.
      reset_key: Field of the reset request that holds the task index.
      reset_extra: Additional constant fields of the reset request.
      reset_fields: Fields of the answer to a reset that form the first observation, joined by line
        breaks; empty if `GET /observation` returns the observation.
      reset_error: Regular expression of texts that report a failed reset with status 200.
      vocabulary_route: Route that lists the words shown in every first observation; may be empty.
      observation_field: Field of a step's answer that holds the text.
      actions_field: Field of every answer that lists the possible actions, if there is one.
      score_fields: Possible names of the field with the score; the first that is present is used.
      done_field: Field of a step's answer that marks the end of the episode.
      reward_at_end: True if rewards are used only from the answer that ends the episode.
      reward_scale: Factor that converts reward and score to a unit in which 1 is the maximum.
      succeeded: Condition under which a step solves the task.
      refusal: Regular expression of the beginning of an answer that rejects an action, or empty.
      stateless: Regular expression of the beginning of an answer that shows no state, or empty.
      actions: Rules for parsing a model's text.
      functions: Actions as functions; empty if AgentGym has no adapter for the environment.
      world: Description of the environment, without its actions.
      has_close: True if AgentGym's server has a route that closes a session.
      num_tasks: Number of tasks, used if the server has no task manifest.
      max_turns: Number of turns after which AgentGym stops an evaluation episode.
      instructions: System prompt of the agent, in the format of `actions`, without tools.
      tools: Tools, whose calls are the actions; empty for other environments.
    """

    environment: str
    session_field: Literal["id", "env_idx"] = "id"
    path_prefix: str = ""
    create_body: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reset_key: str = "data_idx"
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
    world: str = ""
    has_close: bool = True
    num_tasks: int
    max_turns: int
    instructions: str
    tools: Sequence[Mapping[str, Any]] = ()

    @property
    def shown_tools(self) -> Sequence[Mapping[str, Any]]:
        """Returns the tools that the chat template of a model writes."""
        return self.tools if self.actions.format is ActionFormat.TOOLS else ()

    @property
    def formats(self) -> tuple[ActionFormat, ...]:
        """Returns the supported action formats; the first is the environment's default."""
        found = [self.actions.format]
        if self.actions.format is ActionFormat.REACT:
            found.append(ActionFormat.REACT_OR_BARE)
        if self.tools:
            return ActionFormat.TOOLS, ActionFormat.RAW
        if self.functions:
            found += [ActionFormat.FUNCTION_CALLING, ActionFormat.CODE_AS_ACTION]
        return tuple(found)

    def in_format(self, action_format: str | None) -> "ServerFacts":
        """Returns the facts for another format of the model's actions; None keeps the format."""
        if action_format is None or action_format == self.actions.format:
            return self
        if action_format not in self.formats:
            raise ValueError(
                f"{self.environment} has no action format {action_format!r}, "
                f"expected one of {[str(f) for f in self.formats]}"
            )
        chosen = ActionFormat(action_format)
        if chosen is ActionFormat.REACT_OR_BARE:
            rules = dataclasses.replace(self.actions, format=chosen)
            return dataclasses.replace(self, actions=rules)
        if self.tools:  # the text is the JSON of a call
            rules = dataclasses.replace(self.actions, format=chosen, ignores_thinking=True)
            return dataclasses.replace(self, actions=rules)
        rules = ActionRules(chosen, self.actions.max_characters, functions=self.functions)
        text = instructions.with_functions(self.world, self.functions, chosen)
        return dataclasses.replace(self, actions=rules, instructions=text)

    def served_by(self, spec: EnvironmentSpec) -> "ServerFacts":
        """Returns the facts with the rejection prefix and action format of the server's `/spec`."""
        said = from_spec(spec)
        own = self.actions.format
        own = ActionFormat.REACT if own is ActionFormat.REACT_OR_BARE else own
        # reward shaping can lower the reward of a solved task below 1; the spec has the threshold
        has_default = self.succeeded == Success()
        return dataclasses.replace(
            self,
            refusal=said.refusal or self.refusal,
            actions=self.actions if said.actions.format is own else said.actions,
            instructions=said.instructions,
            tools=said.tools,
            succeeded=Success(least=spec.success_score) if has_default else self.succeeded,
        )

    def is_rejection(self, text: str) -> bool:
        """Returns True if an answer says that the action was rejected."""
        return bool(self.refusal) and re.match(self.refusal, text) is not None

    def shows_state(self, text: str) -> bool:
        """Returns True if an answer describes the state of the environment."""
        return not self.stateless or re.match(self.stateless, text) is None


def from_spec(spec: EnvironmentSpec) -> ServerFacts:
    """Returns the facts in a server's `/spec`; raises ValueError if the spec is invalid."""
    known = (ActionFormat.REACT, ActionFormat.RAW, ActionFormat.TOOLS)
    if spec.action_format not in known:
        raise ValueError(f"action_format is {spec.action_format!r}, expected react, raw or tools")
    if bool(spec.tools) != (spec.action_format == ActionFormat.TOOLS):
        raise ValueError(f"action_format {spec.action_format!r} with {len(spec.tools)} tools")
    check_tools(spec.tools)
    if not 1 / LARGEST_NUMBER <= spec.max_score <= LARGEST_NUMBER:
        raise ValueError(f"max_score {spec.max_score} is not positive, or far from the order of 1")
    try:
        re.compile(spec.refusal)
    except re.error as error:
        raise ValueError(f"refusal {spec.refusal!r} is no regular expression: {error}") from error
    return ServerFacts(
        environment=spec.name,
        score_fields=("score", "reward"),
        succeeded=Success("score", spec.success_score, needs_done=True),
        refusal=spec.refusal,
        reward_scale=1.0 / spec.max_score,
        actions=ActionRules(ActionFormat(spec.action_format), max_characters=MAX_TEXT_CHARACTERS),
        num_tasks=spec.num_tasks,
        max_turns=spec.max_turns,
        instructions=spec.instructions,
        tools=tuple(spec.tools),
    )
