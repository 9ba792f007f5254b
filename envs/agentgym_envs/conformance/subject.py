"""The environment under test: its sample of tasks, and episodes whose failures name the moment."""

import bisect
import dataclasses
import functools
import json
import random
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.kind import EnvironmentKind, load_kind
from agentgym_envs.conformance.server import Server

_Answer = TypeVar("_Answer")

NONSENSE = ("dance on the moon", "frobnicate", "answer with a poem", "42 apples please")
_EXPERT_ACTIONS = 100  # the scripted player may take, or more if the spec allows more
_SHOWN = 200  # characters of a text in a message


class Violation(Exception):
    """A promise that does not hold; the message says where, what was found, what was expected."""


class NotApplicable(Exception):
    """There is nothing to try in this environment; the message says why."""


@dataclasses.dataclass(frozen=True)
class Turn:
    """One action of a recorded episode.

    Attributes:
      action: as sent.
      is_valid: the environment had listed it as valid.
      result: the answer.
    """

    action: str
    is_valid: bool
    result: StepResult


@dataclasses.dataclass(frozen=True)
class Transcript:
    """A recorded episode.

    Attributes:
      data_idx: which task.
      first: answer to the reset.
      turns: what followed.
    """

    data_idx: int
    first: StepResult
    turns: tuple[Turn, ...]

    @property
    def actions(self) -> list[str]:
        """All actions in their order."""
        return [turn.action for turn in self.turns]

    @property
    def results(self) -> list[StepResult]:
        """All answers, that to the reset first."""
        return [self.first, *(turn.result for turn in self.turns)]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """An episode of the scripted player.

    Attributes:
      data_idx: which task.
      actions: what it did.
      score: at the end.
      is_done: the environment ended the episode.
      is_solved: with a score of success.
      problem: why it stopped before; empty if it did not.
    """

    data_idx: int
    actions: tuple[str, ...]
    score: float
    is_done: bool
    is_solved: bool
    problem: str


class Play:
    """An environment being played. Whatever it raises becomes a Violation that names the moment.

    Args:
      environment: a new one.
    """

    def __init__(self, environment: Environment):
        self.environment = environment
        self._data_idx: int | None = None
        self._actions: list[str] = []

    @property
    def moment(self) -> str:
        """Where the episode is, for messages."""
        if self._data_idx is None:
            return "before the first reset"
        if not self._actions:
            return f"task {self._data_idx} after its reset"
        # A list of many or long actions would hide what happened.
        shown = shorten(", ".join(map(ascii, self._actions[-5:])))
        dots = "..., " if len(self._actions) > 5 else ""
        return f"task {self._data_idx} after {len(self._actions)} actions ({dots}{shown})"

    def reset(self, data_idx: int) -> StepResult:
        """As the environment's."""
        result = self._call(f"reset({data_idx})", lambda: self.environment.reset(data_idx))
        self._data_idx, self._actions = data_idx, []
        return self._checked("reset", result)

    def step(self, action: str) -> StepResult:
        """As the environment's."""
        shown = f"step({shorten(ascii(action))})"
        result = self._call(shown, lambda: self.environment.step(action))
        self._actions.append(action)
        return self._checked(shown, result)

    def expert_action(self) -> str:
        """As the environment's."""
        return self._call("expert_action()", self.environment.expert_action)

    def valid_actions(self) -> list[str]:
        """As the environment's."""
        return self._call("valid_actions()", self.environment.valid_actions)

    def state(self) -> dict[str, Any]:
        """As the environment's."""
        return self._call("state()", self.environment.state)

    def snapshot(self) -> Any:
        """The environment's snapshot after a way through JSON.

        Raises:
          NotApplicable: it has none.
        """
        try:
            snapshot = self.environment.snapshot()
        except NotImplementedError as error:
            raise NotApplicable("has no snapshots") from error
        return self._call("the snapshot as JSON", lambda: json.loads(json.dumps(snapshot)))

    def restore(self, snapshot: Any, of: "Play") -> None:
        """As the environment's; the moment is that of the play which was saved."""
        self._call("restore()", lambda: self.environment.restore(snapshot))
        self._data_idx, self._actions = of._data_idx, list(of._actions)

    def close(self) -> None:
        """As the environment's."""
        self._call("close()", self.environment.close)

    def _call(self, what: str, function: Callable[[], _Answer]) -> _Answer:
        try:
            return function()
        except EnvironmentFault as fault:
            raise Violation(f"{self.moment}: {what} was refused: {fault.message}") from fault
        except Exception as error:  # an environment under test may raise anything
            raise Violation(
                f"{self.moment}: {what} raised {type(error).__name__}: {shorten(str(error))}"
            ) from error

    def _checked(self, what: str, result: Any) -> StepResult:
        if not isinstance(result, StepResult):
            raise Violation(
                f"{self.moment}: {what} answered a {type(result).__name__}, expected a StepResult"
            )
        return result


class Subject:
    """An environment and the episodes that its properties are tried with.

    Args:
      module: offers `make_kind()`; other processes import it by this name.
      compat: AgentGym's behaviour.
      tasks: how many tasks are played.
      actions: how many in each of them, at most.
      options: of `make_kind()`.

    Raises:
      SetupError: the environment cannot run here.
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
        self.kind: EnvironmentKind = load_kind(module, options)
        self.kind.prepare()
        self._num_tasks = tasks

    def play(self) -> Play:
        """A new environment."""
        make = self.kind.compat_factory if self.compat else self.kind.factory
        return Play(make())

    @functools.cached_property
    def indices(self) -> tuple[int, ...]:
        """One task of each of as many equal stretches of the manifest; always the same ones."""
        total = len(self.kind.tasks())
        if self.compat:
            total = self._compat_tasks(total)
        count = min(self._num_tasks, total)
        rng = random.Random(f"conformance/{self.kind.spec.name}")
        bounds = [total * i // count for i in range(count + 1)]
        return tuple(rng.randrange(bounds[i], bounds[i + 1]) for i in range(count))

    def _compat_tasks(self, total: int) -> int:
        """How many of our tasks AgentGym's rules know: all, or the first ones."""
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
        """Episodes of a player that mixes valid actions, the expert's and nonsense."""
        return tuple(self._record(data_idx) for data_idx in self.indices)

    @functools.cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """Episodes of the scripted player, one for each task."""
        return tuple(self._attempt(data_idx) for data_idx in self.indices)

    @functools.cached_property
    def server(self) -> Server:
        """A server of this environment; it lives until `close`."""
        return Server(self.module, compat=self.compat, options=self.options)

    def close(self) -> None:
        """Ends the server if there is one."""
        if "server" in self.__dict__:
            self.__dict__.pop("server").close()

    def _attempt(self, data_idx: int) -> Attempt:
        play = self.play()
        result = play.reset(data_idx)
        actions: list[str] = []
        problem = ""
        while not result.done and len(actions) < max(_EXPERT_ACTIONS, self.kind.spec.max_turns):
            try:
                action = play.expert_action()
                result = play.step(action)
            except Violation as violation:
                problem = str(violation)
                break
            actions.append(action)
        play.close()
        solved = result.done and result.score >= self.kind.spec.success_score
        return Attempt(data_idx, tuple(actions), result.score, result.done, solved, problem)

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
    """An action and whether it was listed as valid."""
    draw = rng.random()
    try:
        if draw < 0.5:
            return rng.choice(list(play.valid_actions())), True
        if draw < 0.8:
            return play.expert_action(), False
    except (Violation, IndexError, TypeError):
        pass  # properties of their own try these two; here the episode just goes on
    return rng.choice(NONSENSE), False


def as_json(result: StepResult) -> str:
    """A result as text that is equal exactly if the results are, NaN included."""
    return json.dumps([result.observation, result.reward, result.score, result.done])


def check_same(found: StepResult, expected: StepResult, where: str) -> None:
    """Two results that must be equal.

    Raises:
      Violation: with the first field that differs.
    """
    if as_json(found) == as_json(expected):
        return
    if found.observation != expected.observation:
        raise Violation(f"{where}: {text_difference(found.observation, expected.observation)}")
    numbers = [(r.reward, r.score, r.done) for r in (found, expected)]
    raise Violation(
        f"{where}: found reward, score, done = {numbers[0]}, expected {numbers[1]} as before"
    )


def text_difference(found: str, expected: str) -> str:
    """The first line in which two texts differ."""
    pairs = zip(found.splitlines() + ["(end)"], expected.splitlines() + ["(end)"], strict=False)
    for number, (a, b) in enumerate(pairs, 1):
        if a != b:
            return f"line {number} of the observation is {shorten(ascii(a))}, expected {shorten(ascii(b))}"
    return f"the observation is {shorten(ascii(found))}, expected {shorten(ascii(expected))}"


def check_replay(transcript: Transcript, play: Play) -> None:
    """Plays the actions of a transcript, which must have the same answers again.

    Raises:
      Violation: they have not.
    """
    check_same(play.reset(transcript.data_idx), transcript.first, play.moment)
    for turn in transcript.turns:
        check_same(play.step(turn.action), turn.result, play.moment)


def shorten(text: str) -> str:
    """A text of at most some lines."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
