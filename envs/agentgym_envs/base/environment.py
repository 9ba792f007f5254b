"""Interface of a simulator: each environment implements one small class."""

import abc
import dataclasses
from typing import Any

from agentgym_envs.base.protocol import ErrorKind


class EnvironmentFault(Exception):
    """Error for a request that cannot be served; the client receives a typed error body.

    Attributes:
      message: Text that names the value found and the value expected.
      compat_message: AgentGym's text for the same error, sent under `--compat`.
      origin: Place and type of an error of the environment's own code, such as `guess.py:30 in
        step: KeyError`; empty for other errors.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        compat_message: str | None = None,
        *,
        origin: str = "",
    ):
        super().__init__(message)
        self.origin = origin
        self.kind = kind
        self.message = message
        self.compat_message = message if compat_message is None else compat_message


def check_task(
    name: str,
    data_idx: int,
    num_tasks: int,
    compat_message: str | None = None,
    *,
    field: str = "data_idx",
) -> None:
    """Raises EnvironmentFault (UNKNOWN_TASK) unless an environment has a task of this index."""
    if not 0 <= data_idx < num_tasks:
        message = f"{name} has tasks 0 .. {num_tasks - 1}, {field} was {data_idx}"
        raise EnvironmentFault(ErrorKind.UNKNOWN_TASK, message, compat_message)


class SimulatorLost(Exception):
    """Error for a simulator that is permanently lost, such as a JVM that died.

    The worker process that raises this error exits, and the server starts a new one.
    """


class SetupError(Exception):
    """Error for an environment that cannot run here; the message says what to install."""


@dataclasses.dataclass(frozen=True)
class StepResult:
    """Result of a reset or an action.

    Attributes:
      observation: Text of the environment. It is all that the agent reads, unless a class with
        further fields overrides `text`.
      reward: Reward of this step. Numbers of numpy are numbers, here and in `score`.
      score: Current score of the episode, in the environment's own unit.
      done: True if the environment ended the episode.
    """

    observation: str
    reward: float
    score: float
    done: bool

    @property
    def text(self) -> str:
        """Returns all that the agent reads."""
        return self.observation


class Environment(abc.ABC):
    """Simulator of one session, used by one thread at a time.

    A task depends only on `data_idx`: the same index gives the same initial state on every machine.
    An episode depends only on the task and the actions, so it can be restored by repeating its
    actions.
    """

    @abc.abstractmethod
    def reset(self, data_idx: int) -> StepResult:
        """Starts task `data_idx`.

        Raises:
          EnvironmentFault: UNKNOWN_TASK; the current episode continues.
        """

    @abc.abstractmethod
    def step(self, action: str) -> StepResult:
        """Applies one action.

        Raises:
          EnvironmentFault: NOT_RESET before the first reset, FINISHED after the end.
        """

    def expert_action(self) -> str:
        """Returns the next action of a competent scripted agent in the current state.

        Raises:
          NotImplementedError: The environment has no scripted agent.
        """
        raise NotImplementedError(f"{type(self).__name__} has no expert_action")

    def valid_actions(self) -> list[str]:
        """Returns sensible actions in the current state, for random agents and demonstrations.

        Raises:
          NotImplementedError: The environment cannot list its actions.
        """
        raise NotImplementedError(f"{type(self).__name__} has no valid_actions")

    def snapshot(self) -> Any:
        """Returns the current state as JSON types; `restore` accepts it, even in another process.

        Raises:
          EnvironmentFault: NOT_RESET before the first reset.
          NotImplementedError: The simulator has no snapshots.
        """
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")

    def restore(self, snapshot: Any) -> None:
        """Restores a state that `snapshot` of the same environment returned.

        Raises:
          NotImplementedError: The simulator has no snapshots.
        """
        raise NotImplementedError(f"{type(self).__name__} has no snapshots")

    def close(self) -> None:
        """Releases the resources of the simulator."""
        return None  # most simulators have nothing to release

    def state(self) -> dict[str, Any]:
        """Returns facts about the current state for viewers, as JSON types."""
        return {}
