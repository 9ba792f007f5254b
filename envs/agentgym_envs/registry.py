"""Table of the environments by name. Modules of users can be served too."""

import dataclasses
import importlib.util
import pathlib
from collections.abc import Mapping

from agentgym_envs.base.environment import SetupError


@dataclasses.dataclass(frozen=True)
class RegistryEntry:
    """Module and port of an environment.

    Attributes:
      module: Module that defines `make_served_environment()`. It is imported only on request,
        because the simulators of other environments may not be installed.
      port: Default port of its server.
    """

    module: str
    port: int


ENVIRONMENTS: Mapping[str, RegistryEntry] = {
    "textcraft": RegistryEntry("agentgym_envs.textcraft.served", 36001),
    "babyai": RegistryEntry("agentgym_envs.babyai.served", 36002),
    "sciworld": RegistryEntry("agentgym_envs.sciworld.served", 36003),
    "webarena": RegistryEntry("agentgym_envs.webarena.served", 36004),
    "searchqa": RegistryEntry("agentgym_envs.searchqa.served", 36005),
    "maze": RegistryEntry("agentgym_envs.maze.served", 36006),
    "wordle": RegistryEntry("agentgym_envs.wordle.served", 36007),
    "weather": RegistryEntry("agentgym_envs.tools.weather", 36008),
    "movie": RegistryEntry("agentgym_envs.tools.movie", 36009),
    "academia": RegistryEntry("agentgym_envs.tools.academia", 36010),
    "todo": RegistryEntry("agentgym_envs.tools.todo", 36011),
    "sheet": RegistryEntry("agentgym_envs.tools.sheet", 36012),
    "sqlgym": RegistryEntry("agentgym_envs.tools.sqlgym", 36013),
    "alfworld": RegistryEntry("agentgym_envs.alfworld.served", 36014),
    "webshop": RegistryEntry("agentgym_envs.webshop.served", 36015),
    "reasoning_gym": RegistryEntry("agentgym_envs.reasoning_gym", 36016),
    "textarena": RegistryEntry("agentgym_envs.textarena", 36017),
    "tau2": RegistryEntry("agentgym_envs.tau2", 36018),
    "bfcl": RegistryEntry("agentgym_envs.bfcl", 36019),
    "mcp": RegistryEntry("agentgym_envs.mcp.served", 36020),
    "terminals": RegistryEntry("agentgym_envs.terminals.served", 36021),
}
OTHER_PORT = 36000  # default port of modules that are not in the table


def find(name: str) -> RegistryEntry:
    """Returns the entry of a name in ENVIRONMENTS, or of a module such as `my_envs.guess`.

    Raises:
      SetupError: Neither a name nor a module matches.
    """
    if name in ENVIRONMENTS:
        return ENVIRONMENTS[name]
    if name.endswith(".py"):
        raise SetupError(
            f"{name!r} is a file; write the name of its module, {pathlib.PurePath(name).stem}, and "
            "start the command in its folder"
        )
    if not _is_module(name):
        raise SetupError(
            f"{name!r} is neither an environment ({', '.join(ENVIRONMENTS)}) nor a module that Python "
            "finds. Check the spelling; a module of your own must be in the current folder or on "
            "PYTHONPATH and is named as for import, such as my_envs.guess"
        )
    return RegistryEntry(name, OTHER_PORT)


def _is_module(name: str) -> bool:
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:  # the part before the last dot is not importable
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return False
        raise SetupError(f"the module {name} cannot be imported: {error}") from error
