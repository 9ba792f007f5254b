"""A scripted player (being written in the next step): it only repeats the list of actions."""

from collections.abc import Mapping

from agentgym_envs.babyai.paths import Moves
from agentgym_envs.babyai.world import World


def next_action(world: World, actions: Mapping[str, Moves]) -> str:
    """The next action."""
    del world
    return next(iter(actions))
