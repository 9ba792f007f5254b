"""Helpers for the BabyAI tests."""

from agentgym_envs.babyai import levels
from agentgym_envs.babyai.environment import BabyAIEnvironment
from agentgym_envs.babyai.view import EMPTY, SIZE, View


def started(level: str, seed: int, scoring=None) -> BabyAIEnvironment:
    """Returns an environment at the start of a task."""
    environment = BabyAIEnvironment(scoring)
    environment.reset(levels.data_idx(level, seed))
    return environment


def view_of(*things: tuple[str, int, int]) -> View:
    """Returns a view of an empty floor with these things, each given as (name, ahead, right)."""
    cells = [EMPTY] * (SIZE * SIZE)
    for name, ahead, right in things:
        cells[(SIZE - 1 - ahead) * SIZE + right + SIZE // 2] = name
    return View(tuple(cells))
