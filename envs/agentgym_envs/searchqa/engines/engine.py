"""Interface and list of the search engines."""

import importlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from agentgym_envs.base import extras
from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.engines.corpus_file import Corpus

Hit = tuple[int, float]  # (number of a passage, score)


class Engine(Protocol):
    """Opened index, for one thread at a time."""

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Finds the best passages for each query, best first; fewer than `topk` if fewer match."""


# Module of each engine. A module is imported only when it is used, because each engine needs other
# packages.
ENGINES: Mapping[str, str] = {
    "bm25s": "agentgym_envs.searchqa.engines.bm25",
    "tantivy": "agentgym_envs.searchqa.engines.tantivy_index",
    "dense": "agentgym_envs.searchqa.engines.dense",
}
MAX_TOPK = 100


def load_engine(name: str) -> "EngineModule":
    """Imports the module of an engine.

    Raises:
      SetupError: The engine does not exist, or its packages are missing.
    """
    if name not in ENGINES:
        raise SetupError(f"searchqa: engine={name!r} is none of {', '.join(ENGINES)}")
    try:
        module = importlib.import_module(ENGINES[name])
    except ImportError as error:
        raise SetupError(
            f"searchqa: the engine {name} needs the Python package {error.name}. Install the extra: "
            f"{extras.install('search')}; dense also needs jax, safetensors and tokenizers"
        ) from error
    return module


class EngineModule(Protocol):
    """Interface of an engine's module. `encoder` is the folder of the dense engine's model."""

    def key(self, encoder: str) -> str:
        """Returns the name of the index in the corpus folder, unique among its indices."""

    def build(self, corpus: Corpus, folder: pathlib.Path, encoder: str) -> None:
        """Builds the index, or its missing parts, in an existing folder."""

    def open_index(self, folder: pathlib.Path, encoder: str) -> Engine:
        """Opens an index that was built."""
