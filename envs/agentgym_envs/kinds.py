"""The environments that can be served, by name; modules of a user's own are found beside them."""

import dataclasses
import importlib.util
from collections.abc import Mapping

from agentgym_envs.base.environment import SetupError


@dataclasses.dataclass(frozen=True)
class KindEntry:
    """Where an environment is found.

    Attributes:
      module: offers `make_kind()`; imported only when asked for, because an environment needs
        no more than its own simulator installed.
      port: that its server listens on unless told otherwise.
    """

    module: str
    port: int


KINDS: Mapping[str, KindEntry] = {
    "textcraft": KindEntry("agentgym_envs.textcraft.kind", 36001),
    "babyai": KindEntry("agentgym_envs.babyai.kind", 36002),
    "sciworld": KindEntry("agentgym_envs.sciworld.kind", 36003),
    "webarena": KindEntry("agentgym_envs.webarena.kind", 36004),
    "searchqa": KindEntry("agentgym_envs.searchqa.kind", 36005),
    "maze": KindEntry("agentgym_envs.maze.kind", 36006),
    "wordle": KindEntry("agentgym_envs.wordle.kind", 36007),
}
OTHER_PORT = 36000  # of modules that are not in the table


def find(name: str) -> KindEntry:
    """The environment of a name of KINDS, else of a module such as `my_envs.guess`.

    Raises:
      SetupError: there is neither.
    """
    if name in KINDS:
        return KINDS[name]
    if not _is_module(name):
        raise SetupError(
            f"{name!r} is neither an environment ({', '.join(KINDS)}) nor a module that Python "
            "finds. Check the spelling; a module of your own must be in the current folder or on "
            "PYTHONPATH and is named as for import, such as my_envs.guess"
        )
    return KindEntry(name, OTHER_PORT)


def _is_module(name: str) -> bool:
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:  # a package in front of the last dot
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return False
        raise SetupError(f"the module {name} cannot be imported: {error}") from error
