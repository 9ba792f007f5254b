"""What an engine offers, and which there are."""

import importlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Protocol

from agentgym_envs.base import extras
from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.engines.corpus_file import Corpus

Hit = tuple[int, float]  # number of a passage, score


class Engine(Protocol):
    """An index that was opened. Used by one thread at a time."""

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """The best passages for each query, the best first; fewer if fewer fit at all."""


# Engine -> an EngineModule, imported only where it is used, because each needs other packages.
ENGINES: Mapping[str, str] = {
    "bm25s": "agentgym_envs.searchqa.engines.bm25",
    "tantivy": "agentgym_envs.searchqa.engines.tantivy_index",
    "dense": "agentgym_envs.searchqa.engines.dense",
}
MAX_TOPK = 100


def load_engine(name: str) -> "EngineModule":
    """The module of an engine.

    Raises:
      SetupError: there is no such engine, or its packages are missing.
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
    """What the module of an engine offers; `encoder` is the folder of the dense engine's model."""

    def key(self, encoder: str) -> str:
        """Name of the index below the folder of its corpus; another one where it differs."""

    def build(self, corpus: Corpus, folder: pathlib.Path, encoder: str) -> None:
        """Makes the index, or what of it is missing; the folder is there."""

    def open_index(self, folder: pathlib.Path, encoder: str) -> Engine:
        """Opens an index that was built."""
