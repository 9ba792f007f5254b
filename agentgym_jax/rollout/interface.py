"""Statistics of a rollout, and the texts of an environment."""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_jax.client.actions import ParsedAction
from agentgym_jax.rollout.episode import Renderer
from agentgym_jax.rollout.retries import RetryDecision


@dataclasses.dataclass(frozen=True)
class EnvironmentText:
    """Texts of an environment.

    Attributes:
      preamble: Messages before the first observation.
      parse: Parser of the agent's actions; its option `tool_form` is the form of tool calls.
      tools: Tools that the chat template writes; empty if actions are texts.
      renderer: Renderer of episodes with tools; None to use that of the agent.
    """

    preamble: tuple[Mapping[str, str], ...]
    parse: Callable[..., ParsedAction]
    tools: Sequence[Mapping[str, Any]] = ()
    renderer: Renderer | None = None


@dataclasses.dataclass
class CollectStatistics:
    """Counts and times of one call of `collect`.

    Attributes:
      env_errors: Number of failed attempts by cause.
      episodes: Number of episodes that ended.
      turns: Number of turns that ended, in these episodes and in those that go on in a later call.
      restarts: Number of episodes restarted after a failure of the environment.
      replaced: Number of episodes replaced by another sample of the same task.
      parse_errors: Number of turns with a parse error.
      forks: Number of histories that agent programs have rewritten.
      overridden: Number of sampling parameters of their requests that the config has replaced.
      seconds: Wall time of the whole call, in seconds.
      seconds_env_wait: Part of `seconds` in which the agent had no turn to take.
      judge: Numbers of `requests` to the judge, of episodes with a `cached` score, of `failed`
        episodes, of `prompt_tokens` and `completion_tokens`, and the `cost`; empty without a judge.
      seconds_judge: Time after `seconds` in which the judge scored the episodes.
    """

    env_errors: collections.Counter
    episodes: int = 0
    turns: int = 0
    restarts: int = 0
    replaced: int = 0
    parse_errors: int = 0
    forks: int = 0
    overridden: int = 0
    seconds: float = 0.0
    seconds_env_wait: float = 0.0
    judge: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    seconds_judge: float = 0.0

    def count(self, decision: RetryDecision) -> None:
        """Counts a decision about an episode whose attempt failed."""
        self.restarts += decision is RetryDecision.RESTART
        self.replaced += decision is RetryDecision.OTHER_SAMPLE

    def __add__(self, other: "CollectStatistics") -> "CollectStatistics":
        """Returns the sum of the statistics of two consecutive calls."""
        names = [field.name for field in dataclasses.fields(self)]
        return CollectStatistics(**{n: getattr(self, n) + getattr(other, n) for n in names})
