"""The environment under test: its sample of tasks, and its recorded episodes.

Error messages name the task and the actions.
"""

import bisect
import dataclasses
import functools
import json
import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from agentgym_envs.base.environment import Environment, EnvironmentFault, SetupError, StepResult
from agentgym_envs.base.protocol import is_solved
from agentgym_envs.base.served import ServedEnvironment, load_environment, prepare
from agentgym_envs.base.user_code import (
    BadResult,
    Hanging,
    describe,
    ending,
    place_and_type,
    play,
)
from agentgym_envs.conformance.server import Server
from agentgym_envs.conformance.times import Times

_Answer = TypeVar("_Answer")

NONSENSE = ("dance on the moon", "frobnicate", "answer with a poem", "42 apples please")
OPTIONAL = ("expert_action()", "valid_actions()")
_EXPERT_ACTIONS = 100  # action limit of the scripted agent, unless the spec allows more
_SHOWN = 200  # maximum characters of a text in a message


class Violation(Exception):
    """Failure of a property, with the position, the value found and the value expected.

    Attributes:
      cause: What failures of other properties have in common with this one: place and type of the
        error in the environment's code, or the answer that changes. Empty if nothing is known.
    """

    def __init__(self, message: str, cause: str = ""):
        super().__init__(message)
        self.cause = cause


class Change(Violation):
    """Failure by an answer that differs from an earlier one to the same actions.

    Args:
      message: Position and difference.
      place: Task, and number of actions before the answer.
    """

    def __init__(self, message: str, place: tuple[int | None, int]):
        super().__init__(message, f"task {place[0]}, answer {place[1]}")


class NotApplicable(Exception):
    """Signals that the property does not apply to this environment; the message says why."""


@dataclasses.dataclass(frozen=True)
class Turn:
    """One action of a recorded episode.

    Attributes:
      is_valid: True if the environment had listed the action as valid.
    """

    action: str
    is_valid: bool
    result: StepResult


@dataclasses.dataclass(frozen=True)
class Transcript:
    """A recorded episode."""

    data_idx: int
    first: StepResult
    turns: tuple[Turn, ...]

    @property
    def actions(self) -> list[str]:
        """All actions in their order."""
        return [turn.action for turn in self.turns]

    @property
    def results(self) -> list[StepResult]:
        """All results in order; the first one is that of the reset."""
        return [self.first, *(turn.result for turn in self.turns)]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """An episode of the scripted agent.

    Attributes:
      is_done: True if the environment ended the episode.
      is_solved: True if the episode ended with a score that counts as success.
      problem: Reason for an early stop; empty if there was none.
      cause: `Violation.cause` of an early stop.
    """

    data_idx: int
    actions: tuple[str, ...]
    score: float
    is_done: bool
    is_solved: bool
    problem: str
    cause: str


class Play:
    """An environment during an episode.

    It turns every exception into a Violation that names the task and the actions, and measures the
    times of resets and steps.
    """

    def __init__(self, environment: Environment, times: Times):
        self.environment = environment
        self._times = times
        self._data_idx: int | None = None
        self._actions: list[str] = []

    @property
    def moment(self) -> str:
        """Position in the episode, for messages."""
        if self._data_idx is None:
            return "before the first reset"
        if not self._actions:
            return f"task {self._data_idx} after its reset"
        # A list of many or long actions would make the message hard to read.
        shown = shorten(", ".join(map(ascii, self._actions[-5:])))
        dots = "..., " if len(self._actions) > 5 else ""
        return f"task {self._data_idx} after {len(self._actions)} actions ({dots}{shown})"

    @property
    def place(self) -> tuple[int | None, int]:
        """Task and number of actions."""
        return self._data_idx, len(self._actions)

    def reset(self, data_idx: int) -> StepResult:
        """Starts a task and checks the result."""
        what = f"reset({data_idx})"
        with self._times.measure("reset", f"{self.moment}: {what}"):
            result = self._call(what, lambda: play(self.environment.reset, data_idx))
        self._data_idx, self._actions = data_idx, []
        return result

    def step(self, action: str) -> StepResult:
        """Applies an action and checks the result."""
        what = f"step({shorten(ascii(action))})"
        with self._times.measure("step", f"{self.moment}: {what}"):
            result = self._call(what, lambda: play(self.environment.step, action))
        self._actions.append(action)
        return result

    def ask(self, name: str) -> Any:
        """Calls a method without arguments, such as `state`.

        Raises:
          NotApplicable: The environment does not offer this optional method.
        """
        return self._call(f"{name}()", getattr(self.environment, name))

    def snapshot(self) -> Any:
        """Returns the environment's snapshot after a round trip through JSON.

        Raises:
          NotApplicable: The environment has no snapshots.
        """
        try:
            snapshot = self.environment.snapshot()
        except NotImplementedError as error:
            raise NotApplicable("has no snapshots") from error
        return self._call("the snapshot as JSON", lambda: json.loads(json.dumps(snapshot)))

    def restore(self, snapshot: Any, of: "Play") -> None:
        """Restores a snapshot; later messages give the position in the saved episode."""
        self._call("restore()", lambda: self.environment.restore(snapshot))
        self._data_idx, self._actions = of._data_idx, list(of._actions)

    def close(self) -> None:
        """Closes the environment."""
        self.ask("close")

    def _call(self, what: str, function: Callable[[], _Answer]) -> _Answer:
        try:
            with ending():
                return function()
        except Hanging as error:  # every other property would wait as long
            raise SetupError(f"{self.moment}: {what}: {describe(error)}") from error
        except EnvironmentFault as fault:
            raise Violation(f"{self.moment}: {what} was refused: {fault.message}") from fault
        except NotImplementedError as error:
            if what in OPTIONAL:
                raise NotApplicable(f"has no {what.removesuffix('()')}") from error
            raise self._violation(what, error) from error
        except Exception as error:  # an environment under test can raise any error
            raise self._violation(what, error) from error

    def _violation(self, what: str, error: Exception) -> Violation:
        text = describe(error)
        verb = "answered" if isinstance(error, BadResult) else "failed"
        return Violation(f"{self.moment}: {what} {verb}: {text}", place_and_type(error) or text)


class Subject:
    """An environment under test with the episodes that the properties use.

    Args:
      module: Name of the module that defines `make_served_environment()`.
      tasks: Number of sampled tasks.
      actions: Maximum number of actions per task.

    Raises:
      SetupError: The environment cannot run on this machine.
    """

    def __init__(
        self,
        module: str,
        *,
        compat: bool,
        tasks: int,
        actions: int,
        options: Mapping[str, Any] | None = None,
    ):
        if tasks < 1 or actions < 1:
            raise ValueError(f"tasks={tasks} and actions={actions} must be at least 1")
        self.module = module
        self.compat = compat
        self.options = dict(options or {})
        self.num_actions = actions
        self.served: ServedEnvironment = load_environment(module, options)
        prepare(self.served)
        self._num_tasks = tasks
        self.times = Times()

    def play(self) -> Play:
        """Creates a new environment."""
        make = self.served.compat_factory if self.compat else self.served.factory
        try:
            return Play(make(), self.times)
        except Exception as error:  # an environment under test can raise any error
            text = describe(error)
            cause = place_and_type(error) or text
            raise Violation(f"no environment can be made: {text}", cause) from error

    @functools.cached_property
    def indices(self) -> tuple[int, ...]:
        """Task indices of the sample: one from each of several equal ranges of the manifest."""
        total = len(self.served.tasks())
        if not total:
            raise Violation("the manifest has no tasks, expected at least one")
        if self.compat:
            total = self._compat_tasks(total)
        count = min(self._num_tasks, total)
        rng = random.Random(f"conformance/{self.served.spec.name}")
        bounds = [total * i // count for i in range(count + 1)]
        return tuple(rng.randrange(bounds[i], bounds[i + 1]) for i in range(count))

    def _compat_tasks(self, total: int) -> int:
        """Returns the number of our tasks that exist under AgentGym's rules."""
        play = self.play()

        def is_unknown(data_idx: int) -> bool:
            try:
                play.environment.reset(data_idx)
            except EnvironmentFault:
                return True
            return False

        known = total
        if is_unknown(total - 1):
            known = bisect.bisect_left(range(total), True, key=is_unknown)
        play.close()
        if known == 0:
            raise Violation("the compat environment refuses the first task")
        return known

    @functools.cached_property
    def transcripts(self) -> tuple[Transcript, ...]:
        """Episodes of an agent that mixes valid actions, expert actions and nonsense."""
        return tuple(self._record(data_idx) for data_idx in self.indices)

    @functools.cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """Episodes of the scripted agent, one for each task."""
        return tuple(self._attempt(data_idx) for data_idx in self.indices)

    @functools.cached_property
    def server(self) -> Server:
        """Server of this environment, which runs until `close`."""
        return Server(self.module, compat=self.compat, options=self.options)

    def close(self) -> None:
        """Stops the server if there is one."""
        if "server" in self.__dict__:
            self.__dict__.pop("server").close()

    def _attempt(self, data_idx: int) -> Attempt:
        play = self.play()
        result = play.reset(data_idx)
        actions: list[str] = []
        problem = cause = ""
        while not result.done and len(actions) < max(_EXPERT_ACTIONS, self.served.spec.max_turns):
            try:
                action = play.ask("expert_action")
                result = play.step(action)
            except Violation as violation:
                problem, cause = str(violation), violation.cause
                break
            actions.append(action)
        play.close()
        solved = result.done and is_solved(result.score, self.served.spec.success_score)
        return Attempt(data_idx, tuple(actions), result.score, result.done, solved, problem, cause)

    def _record(self, data_idx: int) -> Transcript:
        rng = random.Random(f"conformance/{data_idx}")
        play = self.play()
        result = first = play.reset(data_idx)
        turns: list[Turn] = []
        while not result.done and len(turns) < self.num_actions:
            action, is_valid = _choose(play, rng)
            result = play.step(action)
            turns.append(Turn(action, is_valid, result))
        play.close()
        return Transcript(data_idx, first, tuple(turns))


def _choose(play: Play, rng: random.Random) -> tuple[str, bool]:
    """Returns an action, and True if the environment listed the action as valid."""
    draw = rng.random()
    try:
        if draw < 0.5:
            return rng.choice(list(play.ask("valid_actions"))), True
        if draw < 0.8:
            return play.ask("expert_action"), False
    except (Violation, NotApplicable, IndexError, TypeError):
        pass  # other properties report errors of these two methods
    return rng.choice(NONSENSE), False


def as_json(result: StepResult) -> str:
    """Formats a result as text; only equal results (NaN equals NaN) have equal texts."""
    return json.dumps([result.observation, result.reward, result.score, result.done])


def check_same(
    found: StepResult, expected: StepResult, where: str, place: tuple[int | None, int]
) -> None:
    """Checks that two results are equal.

    Raises:
      Change: A field differs; the message names the first field that differs.
    """
    if as_json(found) == as_json(expected):
        return
    if found.observation != expected.observation:
        difference = text_difference(found.observation, expected.observation)
        raise Change(f"{where}: {difference}", place)
    numbers = [(r.reward, r.score, r.done) for r in (found, expected)]
    text = f"{where}: found reward, score, done = {numbers[0]}, expected {numbers[1]} as before"
    raise Change(text, place)


def text_difference(found: str, expected: str) -> str:
    """Returns a description of the first line in which two texts differ."""
    pairs = zip(found.splitlines() + ["(end)"], expected.splitlines() + ["(end)"], strict=False)
    for number, (a, b) in enumerate(pairs, 1):
        if a != b:
            return f"line {number} of the observation is {shorten(ascii(a))}, expected {shorten(ascii(b))}"
    return f"the observation is {shorten(ascii(found))}, expected {shorten(ascii(expected))}"


def check_replay(transcript: Transcript, play: Play) -> None:
    """Checks that a repetition of a transcript's actions has the same answers.

    Raises:
      Change: An answer differs.
    """
    check_same(play.reset(transcript.data_idx), transcript.first, play.moment, play.place)
    for turn in transcript.turns:
        check_same(play.step(turn.action), turn.result, play.moment, play.place)


def shorten(text: str) -> str:
    """Shortens a text for a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
