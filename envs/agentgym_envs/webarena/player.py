"""A scripted player: follows a task's solution, and begins again where an episode left it.

A solution (`embedded/script.py`) is a generator that yields None first, is then sent what the agent
sees, and yields what to do next. The player saw exactly what the agent saw; what it does is a function of
the episode's history.
"""

from collections.abc import Generator

from agentgym_envs.webarena.browser.actions import read_action
from agentgym_envs.webarena.browser.errors import ActionRefused
from agentgym_envs.webarena.embedded.script import ScriptError, Solution


class NoSolution(Exception):
    """The script ended or lost its way; the message says where."""


class Player:
    """Follows one episode.

    Args:
      solution: of the task.
      home: address at which the task starts, for a new beginning after an action of another.
      first: what the agent saw first.

    Attributes:
      actions: how many it was told.
    """

    def __init__(self, solution: Solution, home: str, first: str):
        self.actions = 0
        self._solution = solution
        self._home = f"goto [{home}]"
        self._seen = first
        self._script: Generator[str | None, str, None] | None = None
        self._next: str | None = None
        self._begin()

    def saw(self, action: str, observation: str) -> None:
        """Tells an action of the episode, whoever chose it, and what came of it."""
        self.actions += 1
        try:
            wanted = self.next_action()
        except NoSolution:
            wanted = ""
        self._seen = observation
        self._next = None
        if _same(wanted, action):
            if self._script is None:  # it was the way back to the start
                self._begin()
        else:
            self._script = None

    def next_action(self) -> str:
        """What the solution does now.

        Raises:
          NoSolution: it does not know.
        """
        if self._next is None:
            self._next = self._home if self._script is None else self._ask(self._script)
        return self._next

    def _begin(self) -> None:
        self._script = self._solution()
        next(self._script)

    def _ask(self, script: Generator[str | None, str, None]) -> str:
        try:
            action = script.send(self._seen)
        except StopIteration:
            raise NoSolution("the solution of this task has ended") from None
        except ScriptError as error:
            raise NoSolution(str(error)) from error
        assert action is not None  # only the first time
        return action


def _same(wanted: str, action: str) -> bool:
    try:
        return read_action(wanted) == read_action(action)
    except ActionRefused:
        return False
