"""Serves a simulator with gymnasium's `reset` and `step`, and text observations, as an environment.

The simulator is any class of this form; gymnasium itself is not needed:

    reset(seed=..) -> (observation, info)
    step(action) -> (observation, reward, terminated, truncated, info)
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import ServedEnvironment, standard_environment
from agentgym_envs.base.user_code import number_of, parts_of, truth_of

Parser = Callable[[str], Any]
Expert = Callable[[Any], str]
Choices = Callable[[Any], list[str]]

# Test tasks have seeds from here on, so no number of training tasks reaches them.
FIRST_TEST_SEED = 1_000_000
REFUSAL = "Invalid action: "
_RESET = ("observation", "info")  # results of the methods
_STEP = ("observation", "reward", "terminated", "truncated", "info")
_NOT_OPTIONS = {"data_idx", "split", "seed"}


@dataclasses.dataclass(eq=False)
class AdaptedEnvironment(Environment):
    """A simulator with gymnasium's methods. Each episode has a new simulator.

    The arguments are those of `serve`.
    """

    make: Callable[[], Any]
    tasks: Sequence[Mapping[str, Any]]
    parse: Parser | None
    expert: Expert | None
    choices: Choices | None
    _simulator: Any = None
    _score: float = 0.0

    def reset(self, data_idx: int) -> StepResult:
        """Makes a simulator and resets it with the seed and the further facts of the task."""
        self.close()
        self._simulator = self.make()
        self._score = 0.0
        task = self.tasks[data_idx]
        options = {name: fact for name, fact in task.items() if name not in _NOT_OPTIONS}
        arguments = {"options": options} if options else {}
        found = parts_of(self._simulator.reset, _RESET, seed=task["seed"], **arguments)
        observation = found[0]
        return StepResult(observation, reward=0, score=0, done=False)

    def step(self, action: str) -> StepResult:
        """Executes an action; the score is the sum of the rewards."""
        parsed: Any = action
        if self.parse is not None:
            try:
                parsed = self.parse(action)
            except ValueError as error:
                return StepResult(f"{REFUSAL}{error}", reward=0, score=self._score, done=False)
        step = self._simulator.step
        observation, given, *ends, _ = parts_of(step, _STEP, parsed)
        reward = number_of(step, "reward", given)
        done = [truth_of(step, *end) for end in zip(_STEP[2:4], ends, strict=True)]
        self._score += reward
        return StepResult(observation, reward, self._score, any(done))

    def expert_action(self) -> str:
        """Returns the action of the function `expert`."""
        return super().expert_action() if self.expert is None else self.expert(self._simulator)

    def valid_actions(self) -> list[str]:
        """Returns the actions of the function `valid_actions`."""
        return super().valid_actions() if self.choices is None else self.choices(self._simulator)

    def close(self) -> None:
        """Calls the simulator's `close`, if it has this method."""
        close = getattr(self._simulator, "close", None)
        self._simulator = None
        if close is not None:
            close()


def seeded_tasks(
    train: int, test: int, options: Sequence[Mapping[str, Any]] = ({},)
) -> list[dict[str, Any]]:
    """Returns a manifest with `train` + `test` seeds for each entry of `options`.

    Training tasks have the seeds 0, 1, .., test tasks those from FIRST_TEST_SEED on. Within a split
    the tasks of an entry are neighbours, so tasks that are spread evenly belong to all entries. The
    keys of an entry are facts of its tasks, which the simulator's `reset` receives as `options`.
    """
    splits = {manifest.TEST: range(FIRST_TEST_SEED, FIRST_TEST_SEED + test)}
    splits[manifest.TRAIN] = range(train)
    kinds = [
        (split, seed, entry)
        for split, seeds in splits.items()
        for entry in options
        for seed in seeds
    ]
    return [
        {"data_idx": i, "split": split, "seed": seed, **entry}
        for i, (split, seed, entry) in enumerate(kinds)
    ]


def serve(
    make: Callable[[], Any],
    tasks: Sequence[Mapping[str, Any]],
    *,
    parse: Parser | None = None,
    expert: Expert | None = None,
    valid_actions: Choices | None = None,
    **spec: Any,
) -> ServedEnvironment:
    """Returns a simulator with gymnasium's `reset` and `step` as a served environment.

    Every session has its own state of the global generators of `random` and numpy.

    Args:
      make: Class or function without arguments that makes a simulator.
      tasks: Manifest whose tasks have a `seed` (`seeded_tasks`). `reset` receives further facts of a
        task as `options`.
      parse: Function from the agent's text to the simulator's action. Its ValueError rejects the
        text: the agent reads the message, and the state does not change. Default: the text itself.
      expert: Function from the simulator to the next action of a competent agent, as a text.
      valid_actions: Function from the simulator to a list of sensible actions, as texts.
      **spec: Keywords of `standard_environment`: `name`, `version`, `instructions`, `max_turns` and
        the optional ones. Default of `refusal`: the beginning of a rejection by `parse`.

    Raises:
      ValueError: The manifest is wrong.
    """
    unseeded = [i for i, task in enumerate(tasks) if type(task.get("seed")) is not int]
    if unseeded:
        raise ValueError(f"task {unseeded[0]} has no whole number as `seed`: {tasks[unseeded[0]]}")
    if parse is not None:
        spec = {"refusal": REFUSAL, **spec}

    factory = functools.partial(AdaptedEnvironment, make, tasks, parse, expert, valid_actions)
    return standard_environment(factory, tasks, isolate_random=True, **spec)
