"""What a simulator must offer to be served: one small class per environment."""

import abc
import dataclasses
from typing import Any

from agentgym_envs.base.protocol import ErrorKind


class EnvironmentFault(Exception):
    """A request that cannot be served; becomes a typed error body.

    Attributes:
      kind: which error.
      message: what was found and what was expected.
      compat_message: AgentGym's text for the same situation, served under `--compat`.
    """

    def __init__(self, kind: ErrorKind, message: str, compat_message: str | None = None):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.compat_message = message if compat_message is None else compat_message


class SimulatorLost(Exception):
    """The simulator behind this process is gone for good, such as a JVM that died.

    The worker process that raises it ends; the server starts another one in its place.
    """


class SetupError(Exception):
    """An environment cannot run on this machine; the message says what to install."""


@dataclasses.dataclass(frozen=True)
class StepResult:
    """Answer to one action.

    Attributes:
      observation: text for the agent.
      reward: reward of this step.
      score: running score of the episode, in the environment's own unit.
      done: the environment ended the episode.
    """

    observation: str
    reward: float
    score: float
    done: bool


class Environment(abc.ABC):
    """One simulator instance; lives in one session, used by one thread at a time.

    A task is a function of `data_idx` alone: same index, same world, on every machine. What
    follows is a function of the task and the actions, so an episode can be brought back by
    repeating its actions.
    """

    @abc.abstractmethod
    def reset(self, data_idx: int) -> StepResult:
        """Starts task `data_idx`."""

    @abc.abstractmethod
    def step(self, action: str) -> StepResult:
        """Applies one action."""

    @abc.abstractmethod
    def expert_action(self) -> str:
        """What a competent scripted player does next in the present state."""

    @abc.abstractmethod
    def valid_actions(self) -> list[str]:
        """Actions that do something sensible now: for random players and demonstrations."""

    def snapshot(self) -> Any:
        """The present state as JSON types, for `restore`, also in another process.

        Raises:
          NotImplementedError: the simulator cannot.
        """
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")

    def restore(self, snapshot: Any) -> None:
        """Continues from a state that `snapshot` of the same environment gave.

        Raises:
          NotImplementedError: the simulator cannot.
        """
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")

    def close(self) -> None:
        """Releases what the simulator holds."""
        return None  # most simulators hold nothing but memory

    def state(self) -> dict[str, Any]:
        """Facts about the present state for viewers; JSON types."""
        return {}
