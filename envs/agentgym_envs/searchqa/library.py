"""Corpora with their indices, built once below the data folder and opened by every process."""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence

from agentgym_envs.artifacts import locked, signs_of_life
from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.building import fingerprint, say
from agentgym_envs.searchqa.engines.corpus_file import Corpus
from agentgym_envs.searchqa.engines.engine import MAX_TOPK, Engine, EngineModule, load_engine
from agentgym_envs.searchqa.texts import Passage

_FORMAT = "1"  # change this when the folder of a corpus must be rebuilt
_KEPT_QUERIES = 4096  # episodes of a GRPO group often repeat the same queries


@dataclasses.dataclass(frozen=True)
class Index:
    """Index on disk that is not opened yet.

    Attributes:
      folder: Folder of the corpus: offsets, and a folder for each index.
      encoder: Folder of the dense engine's model; empty for other engines.
    """

    corpus: pathlib.Path
    folder: pathlib.Path
    engine: str
    encoder: str

    @property
    def _module(self) -> EngineModule:
        return load_engine(self.engine)

    @property
    def _own(self) -> pathlib.Path:
        return self.folder / self._module.key(self.encoder)

    def build(self) -> None:
        """Builds the missing parts, or waits for another process that builds them.

        Raises:
          SetupError: The corpus cannot be read, or the engine is not installed.
        """
        own = self._own
        ready = own / "ready"
        if ready.exists():
            return
        with locked(self.folder, say):
            if ready.exists():
                return
            corpus = Corpus(self.corpus, self.folder)
            say(f"indexing {len(corpus):,} passages of {self.corpus} with {self.engine}, once")
            own.mkdir(parents=True, exist_ok=True)
            with signs_of_life(say):
                self._module.build(corpus, own, self.encoder)
            ready.touch()

    def open(self) -> "Library":
        """Opens the index; `build` must have been called before."""
        corpus = Corpus(self.corpus, self.folder)
        return Library(corpus, self._module.open_index(self._own, self.encoder))


def index_of(corpus: pathlib.Path, data: pathlib.Path, *, engine: str, encoder: str) -> Index:
    """Returns the index of `corpus.jsonl` or `corpus.jsonl.gz` below a folder for built files.

    Raises:
      SetupError: The file or the engine does not exist.
    """
    load_engine(engine)
    if not corpus.is_file():
        raise SetupError(f"searchqa: there is no corpus at {corpus}")
    return Index(corpus, data / f"index-{fingerprint([corpus], _FORMAT)}", engine, encoder)


class Library:
    """Searchable corpus, for one thread at a time."""

    def __init__(self, corpus: Corpus, engine: Engine):
        self._corpus = corpus
        self._engine = engine
        self._remembered = functools.lru_cache(maxsize=_KEPT_QUERIES)(self._search)

    def __len__(self) -> int:
        return len(self._corpus)

    def search(self, query: str, topk: int) -> tuple[Passage, ...]:
        """Finds the best passages, best first; fewer than `topk` if fewer match."""
        return self._remembered(query, topk)

    def search_all(self, queries: Sequence[str], topk: int) -> list[list[tuple[Passage, float]]]:
        """Finds the best passages for many queries, with scores."""
        if not 1 <= topk <= MAX_TOPK:
            raise ValueError(f"topk={topk} is not in 1 .. {MAX_TOPK}")
        found = self._engine.search(queries, topk)
        return [[(self._corpus[number], score) for number, score in hits] for hits in found]

    def _search(self, query: str, topk: int) -> tuple[Passage, ...]:
        ((*hits,),) = self._engine.search([query], topk)
        return tuple(self._corpus[number] for number, _ in hits)
