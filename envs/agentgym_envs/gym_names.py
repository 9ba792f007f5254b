"""Names of the environments for gymnasium, which imports this module through an entry point.

gymnasium imports this module while gymnasium itself is being imported. Therefore this module
imports only `gymnasium.envs.registration`.
"""

from collections.abc import Mapping

from gymnasium.envs.registration import register as register_id

# Name in this project for each gymnasium name.
IDS: Mapping[str, str] = {
    "TextCraft-v0": "textcraft",
    "BabyAI-v0": "babyai",
    "SciWorld-v0": "sciworld",
    "WebArena-v0": "webarena",
    "SearchQA-v0": "searchqa",
    "Maze-v0": "maze",
    "Wordle-v0": "wordle",
    "Weather-v0": "weather",
    "Movie-v0": "movie",
    "Academia-v0": "academia",
    "Todo-v0": "todo",
    "Sheet-v0": "sheet",
    "SqlGym-v0": "sqlgym",
    "ALFWorld-v0": "alfworld",
    "WebShop-v0": "webshop",
    "ReasoningGym-v0": "reasoning_gym",
    "TextArena-v0": "textarena",
    "Terminals-v0": "terminals",
    "Tau2-v0": "tau2",
    "BFCL-v0": "bfcl",
}


def register() -> None:
    """Registers all environments; gymnasium puts `agentgym/` before the names."""
    for name, environment in IDS.items():
        register_id(
            id=name,
            entry_point="agentgym_envs.gym:TextEnv",
            kwargs={"environment": environment},
            disable_env_checker=True,  # the checker warns about every space that is not an array
        )
