"""Scripted agent that follows a task's solution, and starts the solution again after other actions.

A solution (`agentgym_sites/tasks/script.py`) is a generator. It first yields None, is then sent the
agent's observations, and yields the next actions. The scripted agent sees exactly the agent's
observations, and its actions are a function of the episode's history.
"""

from collections.abc import Generator

from agentgym_envs.webarena.browser.actions import read_action
from agentgym_envs.webarena.browser.errors import ActionRefused
from agentgym_sites.tasks.script import ScriptError, Solution


class NoSolution(Exception):
    """Error if the script ended or an observation did not fit it; the message names the reason."""


class Expert:
    """Scripted agent of one episode.

    Args:
      home: Address at which the task starts; the expert returns to it after an unexpected action.

    Attributes:
      actions: Number of actions that the expert has received.
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
        """Records an action of the episode, from any source, and the observation after it."""
        self.actions += 1
        try:
            wanted = self.next_action()
        except NoSolution:
            wanted = ""
        self._seen = observation
        self._next = None
        if _same(wanted, action):
            if self._script is None:  # the action was `_home`, which opens the start page
                self._begin()
        else:
            self._script = None

    def next_action(self) -> str:
        """Returns the solution's next action.

        Raises:
          NoSolution: The solution has no next action.
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
        assert action is not None  # the script yields None only at its start
        return action


def _same(wanted: str, action: str) -> bool:
    try:
        return read_action(wanted) == read_action(action)
    except ActionRefused:
        return False
