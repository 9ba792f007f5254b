"""Base classes of environments that hold one episode at a time."""

from typing import Any, ClassVar, Generic, Protocol, TypeVar

from agentgym_envs.base.environment import Environment, EnvironmentFault
from agentgym_envs.base.protocol import ErrorKind


class Episode(Protocol):
    """An episode of one task."""

    @property
    def done(self) -> bool:
        """True if the episode is over."""


class ReplayedEpisode(Episode, Protocol):
    """Episode that is determined by its task and its actions."""

    actions: list[str]

    @property
    def data_idx(self) -> int:
        """Index of the task."""


_Episode = TypeVar("_Episode", bound=Episode)
_Replayed = TypeVar("_Replayed", bound=ReplayedEpisode)


class EpisodicEnvironment(Environment, Generic[_Episode]):
    """Environment whose current episode is one object, which `reset` creates."""

    name: ClassVar[str]
    _episode: _Episode | None = None

    @property
    def episode(self) -> _Episode:
        """Current episode, which may be finished.

        Raises:
          EnvironmentFault: NOT_RESET before the first reset.
        """
        if self._episode is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET, f"{self.name}: call reset with the index of a task first"
            )
        return self._episode

    @property
    def playing(self) -> _Episode:
        """Current episode, which must not be finished.

        Raises:
          EnvironmentFault: NOT_RESET before the first reset, FINISHED after the end.
        """
        if self.episode.done:
            raise EnvironmentFault(
                ErrorKind.FINISHED, f"{self.name}: this episode is over; reset to start another one"
            )
        return self.episode


class ReplayedEnvironment(EpisodicEnvironment[_Replayed]):
    """Environment that restores an episode by repeating its actions."""

    def snapshot(self) -> dict[str, Any]:
        """Returns the task and the actions, which determine the state.

        Raises:
          EnvironmentFault: NOT_RESET before the first reset.
        """
        return {"data_idx": self.episode.data_idx, "actions": list(self.episode.actions)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restores a snapshot by starting its task and repeating its actions."""
        self.reset(snapshot["data_idx"])
        for action in snapshot["actions"]:
            self.step(action)
