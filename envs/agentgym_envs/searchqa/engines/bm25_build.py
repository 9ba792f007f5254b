"""Builds an index of bm25s: `python -m agentgym_envs.searchqa.engines.bm25_build CORPUS ITS_FOLDER FOLDER`.

First the words of the corpus are extracted, in parts that are kept, so a build that was killed
resumes after the last part. Then the scores of all words are computed from the parts.
"""

import argparse
import json
import pathlib
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import bm25s
import numpy as np

from agentgym_envs.artifacts import appearing
from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.engines import words
from agentgym_envs.searchqa.engines.bm25 import save
from agentgym_envs.searchqa.engines.corpus_file import Corpus
from agentgym_facts.progress import Progress

PART = 100_000  # passages


def write_part(corpus: Corpus, number: int, folder: pathlib.Path, size: int) -> None:
    """Writes one part of the corpus: its words as numbers, and its vocabulary."""
    splitter = words.Words()
    vocabulary: dict[str, int] = {}
    ids, lengths = [], []
    for contents in corpus.contents(number * size, (number + 1) * size):
        stems = splitter.split(contents)
        ids += [vocabulary.setdefault(stem, len(vocabulary)) for stem in stems]
        lengths.append(len(stems))
    with appearing(_part(folder, number)) as partial:
        np.save(partial / "ids.npy", np.array(ids, dtype=np.int32))
        np.save(partial / "lengths.npy", np.array(lengths, dtype=np.int32))
        (partial / "words.json").write_text(json.dumps(list(vocabulary)), encoding="utf-8")


class Tokens:
    """Words of all parts in the form that bm25s reads: `vocab`, and `ids`, an iterator over
    passages.
    """

    def __init__(self, folders: list[pathlib.Path], progress: Progress, total: int):
        self.vocab: dict[str, int] = {}
        self._folders = folders
        self._progress = progress
        self._total = total
        self._names = iter(("lengths", "words", "scores"))
        self._maps = []
        for folder in folders:
            stems = json.loads((folder / "words.json").read_bytes())
            numbers = [self.vocab.setdefault(stem, len(self.vocab)) for stem in stems]
            self._maps.append(np.array(numbers, dtype=np.int32))
        self.ids = self

    def __len__(self) -> int:
        return self._total

    def __iter__(self) -> Iterator[list[int]]:
        name = next(self._names, "words")
        yield from self._progress.stage(name, self._passages(), self._total)

    def _passages(self) -> Iterator[list[int]]:
        for folder, numbers in zip(self._folders, self._maps, strict=True):
            ids = numbers[np.load(folder / "ids.npy")] if len(numbers) else numbers
            ends = np.cumsum(np.load(folder / "lengths.npy")).tolist()
            for start, end in zip([0, *ends[:-1]], ends, strict=True):
                yield ids[start:end].tolist()


def build(corpus: Corpus, folder: pathlib.Path, size: int = PART) -> None:
    """Builds the missing parts, then the index from all parts.

    Raises:
      SetupError: The corpus cannot be read.
    """
    count = -(-len(corpus) // size)
    parts = [_part(folder, number) for number in range(count)]
    progress = Progress(4)
    missing = [number for number, part in enumerate(parts) if not part.exists()]
    for number in progress.stage(f"parts of {size:,}", missing, len(missing)):
        write_part(corpus, number, folder, size)
    model: Any = bm25s.BM25(method="lucene", k1=1.2, b=0.75, csc_backend="numpy", backend="numpy")
    tokens = Tokens(parts, progress, len(corpus))
    if not tokens.vocab:
        raise SetupError(f"searchqa: {corpus.path} has no words")
    model.index(tokens, create_empty_token=False, show_progress=False)
    save(model, folder)
    for part in parts:
        shutil.rmtree(part)


def _part(folder: pathlib.Path, number: int) -> pathlib.Path:
    return folder / f"part-{number:05d}"


def main(argv: list[str] | None = None) -> int:
    """Builds an index; returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("corpus_folder", type=pathlib.Path, help="folder with line offsets")
    parser.add_argument("folder", type=pathlib.Path, help="folder of the index")
    parser.add_argument("--part", type=int, default=PART, help="passages per part")
    args = parser.parse_args(argv)
    try:
        build(Corpus(args.corpus, args.corpus_folder), args.folder, args.part)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
