"""Search by meaning: compares the vector of the query with the vectors of all passages, in JAX."""

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from agentgym_envs.artifacts import appearing_file
from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.building import fingerprint
from agentgym_envs.searchqa.engines.corpus_file import Corpus
from agentgym_envs.searchqa.engines.encoder import Encoder
from agentgym_envs.searchqa.engines.engine import Hit
from agentgym_facts.progress import Progress

PART = 1024  # number of passages per saved part
_BATCH = 64  # number of texts per encoder call
_VECTORS = "vectors.npy"


class Dense:
    """Dense index with all vectors on JAX's default device."""

    def __init__(self, folder: pathlib.Path, encoder: pathlib.Path):
        self._encoder = Encoder(encoder)
        self._vectors_ND = jnp.asarray(np.load(folder / _VECTORS))

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Implements `Engine.search`."""
        count = min(topk, len(self._vectors_ND))
        results = []
        for start in range(0, len(queries), _BATCH):
            queries_BD = self._encoder.queries(queries[start : start + _BATCH])
            scores, docs = _nearest(self._vectors_ND, jnp.asarray(queries_BD), count)
            for row_docs, row_scores in zip(docs.tolist(), scores.tolist(), strict=True):
                results.append(list(zip(row_docs, row_scores, strict=True)))
        return results


@functools.partial(jax.jit, static_argnums=2)
def _nearest(vectors_ND: Any, queries_BD: Any, count: int) -> Any:
    """Returns inner products and numbers of the nearest passages, the best first."""
    scores_BN = queries_BD @ vectors_ND.T.astype(queries_BD.dtype)
    return jax.lax.top_k(scores_BN, count)


def key(encoder: str) -> str:
    """Implements `EngineModule.key`.

    Raises:
      SetupError: The model does not exist.
    """
    path = pathlib.Path(encoder) / "model.safetensors"
    if not encoder or not path.is_file():
        raise SetupError(
            f"searchqa: engine=dense needs encoder=FOLDER, a sentence encoder with {path.name}; "
            f"got {encoder!r}"
        )
    return f"dense-{fingerprint([path])}"


def build(corpus: Corpus, folder: pathlib.Path, encoder: str) -> None:
    """Encodes the corpus in parts, which are kept if the build is killed."""
    if (folder / _VECTORS).exists():
        return
    starts = range(0, len(corpus), PART)
    parts = {start: folder / f"part-{start:09d}.npy" for start in starts}
    missing = [start for start in starts if not parts[start].exists()]
    if missing:
        model = Encoder(pathlib.Path(encoder))
        for start in Progress(1).stage(f"parts of {PART:,}", missing, len(missing)):
            texts = list(corpus.contents(start, start + PART))
            batches = [texts[i : i + _BATCH] for i in range(0, len(texts), _BATCH)]
            vectors_ND = np.concatenate([model.passages(batch) for batch in batches])
            _save(parts[start], vectors_ND.astype(np.float16))
    _save(folder / _VECTORS, np.concatenate([np.load(part) for part in parts.values()]))
    for part in parts.values():
        part.unlink()


def open_index(folder: pathlib.Path, encoder: str) -> Dense:
    """Opens an index that was built."""
    return Dense(folder, pathlib.Path(encoder))


def _save(path: pathlib.Path, array: np.ndarray) -> None:
    with appearing_file(path) as partial, partial.open("wb") as file:
        np.save(file, array)
