"""Names of the environments for gymnasium, which imports this by itself (an entry point).

It does so while it is being imported, so nothing else of gymnasium or of ours is loaded here.
"""

from collections.abc import Mapping

from gymnasium.envs.registration import register as register_id

# Name for gymnasium -> name here.
IDS: Mapping[str, str] = {
    "TextCraft-v0": "textcraft",
    "BabyAI-v0": "babyai",
    "SciWorld-v0": "sciworld",
    "WebArena-v0": "webarena",
    "SearchQA-v0": "searchqa",
    "Maze-v0": "maze",
    "Wordle-v0": "wordle",
}


def register() -> None:
    """Registers all of them; gymnasium puts `agentgym/` before the names."""
    for name, environment in IDS.items():
        register_id(
            id=name,
            entry_point="agentgym_envs.gym:TextEnv",
            kwargs={"environment": environment},
            disable_env_checker=True,  # it warns of every space that is not an array
        )
