"""A separate random state for each session of a simulator that uses the global generators."""

import contextlib
import importlib
import random
from collections.abc import Callable, Iterator
from typing import Any

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.user_code import play


class IsolatedRandom(Environment):
    """Wraps an environment so that its calls see their own state of `random` and `numpy.random`.

    A reset seeds both generators with the task, so an episode depends only on the task and the
    actions. After every call the former states are restored, so neither another session nor the
    surrounding program is affected. Generators that a simulator makes itself are not changed.

    Args:
      factory: Function that creates the environment.
      name: Name of the environment; part of the seeds.
    """

    def __init__(self, factory: Callable[[], Environment], name: str):
        self._name = name
        self._numpy = _import_numpy()
        self._saved = self._seeded("create")
        with self._own_state():
            self._inner = factory()

    def reset(self, data_idx: int) -> StepResult:
        """Starts a task with the random state of this task."""
        self._saved = self._seeded(data_idx)
        with self._own_state():
            return play(self._inner.reset, data_idx)

    def step(self, action: str) -> StepResult:
        """Applies one action."""
        with self._own_state():
            return play(self._inner.step, action)

    def expert_action(self) -> str:
        """Returns the action of the scripted agent; the state of the episode does not change."""
        with self._own_state(keeps=False):
            return self._inner.expert_action()

    def valid_actions(self) -> list[str]:
        """Returns the sensible actions; the state of the episode does not change."""
        with self._own_state(keeps=False):
            return self._inner.valid_actions()

    def state(self) -> dict[str, Any]:
        """Returns the facts for viewers; the state of the episode does not change."""
        with self._own_state(keeps=False):
            return self._inner.state()

    def snapshot(self) -> Any:
        """Returns the state of the simulator and of its generators."""
        with self._own_state(keeps=False):
            return {"inner": self._inner.snapshot(), "random": _to_json(self._saved)}

    def restore(self, snapshot: Any) -> None:
        """Restores a state that `snapshot` returned."""
        with self._own_state():
            self._inner.restore(snapshot["inner"])
        self._saved = _from_json(snapshot["random"])

    def close(self) -> None:
        """Closes the environment."""
        with self._own_state():
            self._inner.close()

    def _seeded(self, task: int | str) -> list[Any]:
        """Returns the states of freshly seeded generators."""
        seed = random.Random(f"{self._name}/{task}").getrandbits(32)
        states: list[Any] = [random.Random(seed).getstate()]
        if self._numpy is not None:
            states.append(self._numpy.RandomState(seed).get_state())
        return states

    def _states(self) -> list[Any]:
        return [random.getstate()] + ([] if self._numpy is None else [self._numpy.get_state()])

    def _set_states(self, states: list[Any]) -> None:
        random.setstate(states[0])
        if self._numpy is not None:
            self._numpy.set_state(states[1])

    @contextlib.contextmanager
    def _own_state(self, keeps: bool = True) -> Iterator[None]:
        """Swaps the global states; with `keeps`, later calls continue from the state at the end."""
        outer = self._states()
        self._set_states(self._saved)
        try:
            yield
        finally:
            if keeps:
                self._saved = self._states()
            self._set_states(outer)


def _import_numpy() -> Any:
    """Returns `numpy.random`, or None without numpy; a simulator may import numpy later."""
    try:
        return importlib.import_module("numpy.random")
    except ImportError:
        return None


def _to_json(states: list[Any]) -> list[Any]:
    version, numbers, gauss = states[0]
    found: list[Any] = [[version, list(numbers), gauss]]
    for kind, keys, position, has_gauss, cached in states[1:]:
        found.append([kind, keys.tolist(), int(position), int(has_gauss), float(cached)])
    return found


def _from_json(saved: list[Any]) -> list[Any]:
    version, numbers, gauss = saved[0]
    return [(version, tuple(numbers), gauss), *(tuple(state) for state in saved[1:])]
