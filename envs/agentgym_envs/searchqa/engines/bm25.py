"""BM25 with precomputed scores: an index of bm25s (Lù 2024, arXiv:2407.03618), searched by our
kernel.

The kernel reads the arrays through the memory map, so worker processes share them. Its work is
proportional to the number of passages that contain the words of the query. Passages with equal
scores keep the order of the corpus. Only a separate process imports bm25s, to build an index,
because importing bm25s reserves the accelerator if JAX is installed.
"""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np

from agentgym_envs.artifacts import appearing
from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.engines import words
from agentgym_envs.searchqa.engines.corpus_file import Corpus
from agentgym_envs.searchqa.engines.engine import Hit

_INDEX = "index"
_BUILD = "agentgym_envs.searchqa.engines.bm25_build"


@numba.njit(cache=True, nogil=True)
def _best(
    scores: Any, data: Any, indices: Any, indptr: Any, tokens: Any, docs: Any, points: Any
) -> int:
    """Writes the best passages to `docs` and `points`; returns the number of these passages.

    Args:
      scores: Zeros, float32, one for each passage; zero again on return.
      data: Scores of all words in all passages, word by word, as bm25s saves them.
      indices: Passage of each score in `data`.
      indptr: Position in `data` and `indices` at which each word begins.
      tokens: Numbers of the words of the query.
      docs: Output array of passage numbers, as long as the requested number of passages.
      points: Output array of the scores of these passages.
    """
    for token in tokens:
        for i in range(indptr[token], indptr[token + 1]):
            scores[indices[i]] += data[i]
    wanted, found = len(docs), 0
    for token in tokens:
        for i in range(indptr[token], indptr[token + 1]):
            doc = indices[i]
            score = scores[doc]
            if score <= 0.0:  # the passage was already handled with an earlier word
                continue
            scores[doc] = 0.0
            if found == wanted and (
                score < points[found - 1] or (score == points[found - 1] and doc > docs[found - 1])
            ):
                continue
            place = found if found < wanted else wanted - 1
            while place > 0 and (
                score > points[place - 1] or (score == points[place - 1] and doc < docs[place - 1])
            ):
                points[place] = points[place - 1]
                docs[place] = docs[place - 1]
                place -= 1
            points[place] = score
            docs[place] = doc
            found = min(found + 1, wanted)
    return found


class Bm25:
    """Index whose arrays are memory maps."""

    def __init__(self, folder: pathlib.Path):
        def array(name: str) -> Any:
            return np.load(folder / f"{name}.csc.index.npy", mmap_mode="r").view(np.ndarray)

        self._data, self._indices = array("data"), array("indices")
        self._indptr = array("indptr")
        self._vocabulary: dict[str, int] = json.loads((folder / "vocab.index.json").read_bytes())
        params = json.loads((folder / "params.index.json").read_bytes())
        self._scores = np.zeros(params["num_docs"], dtype=np.float32)
        self._words = words.Words()
        self.search(["warm up"], 1)  # compiles the kernel if no earlier run has compiled it

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Implements `Engine.search`."""
        docs = np.zeros(topk, dtype=np.int64)
        points = np.zeros(topk, dtype=np.float32)
        results = []
        for query in queries:
            stems = self._words.split(query)
            known = [self._vocabulary[stem] for stem in stems if stem in self._vocabulary]
            tokens = np.array(known, dtype=np.int64)
            found = _best(
                self._scores, self._data, self._indices, self._indptr, tokens, docs, points
            )
            results.append(list(zip(docs[:found].tolist(), points[:found].tolist(), strict=True)))
        return results


def key(encoder: str) -> str:
    """Implements `EngineModule.key`."""
    return f"bm25s-{words.VERSION}"


def build(corpus: Corpus, folder: pathlib.Path, encoder: str) -> None:
    """Builds the index in a separate process, which resumes an interrupted build.

    Raises:
      SetupError: The build failed.
    """
    if (folder / _INDEX).exists():
        return
    command = [sys.executable, "-m", _BUILD, str(corpus.path), str(folder.parent), str(folder)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=2)
    if done.returncode or not (folder / _INDEX).exists():
        raise SetupError(
            f"searchqa: building the index of {corpus.path} failed with status {done.returncode}; "
            "its last output is above. Finished parts are kept: start again to resume"
        )


def open_index(folder: pathlib.Path, encoder: str) -> Bm25:
    """Opens an index that was built."""
    return Bm25(folder / _INDEX)


def save(model: Any, folder: pathlib.Path) -> None:
    """Saves an index of bm25s; the files become visible only when all are complete."""
    with appearing(folder / _INDEX) as partial:
        model.save(partial, show_progress=False)
