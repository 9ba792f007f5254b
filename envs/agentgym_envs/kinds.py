"""The environments that can be served, by name."""

import dataclasses
from collections.abc import Mapping


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
    "maze": KindEntry("agentgym_envs.maze.kind", 36006),
    "wordle": KindEntry("agentgym_envs.wordle.kind", 36007),
}
