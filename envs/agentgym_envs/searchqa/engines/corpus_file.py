"""Passages of a corpus by number, from JSON lines as in wiki-18 (`{"id", "contents"}`)."""

import gzip
import json
import pathlib
import shutil
from collections.abc import Iterator

from agentgym_envs.artifacts import appearing_file
from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.building import say
from agentgym_envs.searchqa.lines import Lines, write_offsets
from agentgym_envs.searchqa.texts import Passage


class Corpus:
    """Passages of a corpus on disk.

    Args:
      path: File `corpus.jsonl`, or `corpus.jsonl.gz`, which is unpacked into the folder once.
      folder: Folder for the unpacked corpus and the positions of its lines.

    Raises:
      SetupError: The corpus does not exist.
    """

    def __init__(self, path: pathlib.Path, folder: pathlib.Path):
        self.path = path
        offsets = folder / "offsets.npy"
        text = folder / "passages.jsonl" if path.suffix == ".gz" else path
        if not offsets.exists():
            folder.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".gz" and not text.exists():
                say(f"unpacking {path}, once")
                with appearing_file(text) as partial:
                    with gzip.open(path) as packed, partial.open("wb") as file:
                        shutil.copyfileobj(packed, file, 1 << 20)
            if text.stat().st_size == 0:
                raise SetupError(f"searchqa: {path} has no passages")
            with text.open("rb") as file:
                write_offsets(file, offsets)
        self._lines = Lines(text, offsets)

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, number: int) -> Passage:
        row = json.loads(self._lines[number])
        if not isinstance(row["contents"], str):
            raise TypeError("contents is no text")
        return Passage(str(row["id"]), row["contents"])

    def contents(self, start: int, end: int) -> Iterator[str]:
        """Yields the title and text of the passages from `start` to `end`.

        Raises:
          SetupError: A row is not a passage.
        """
        for number in range(start, min(end, len(self))):
            try:
                yield self[number].contents
            except (ValueError, KeyError, TypeError) as error:
                raise SetupError(
                    f"searchqa: row {number + 1} of the corpus is no JSON object with `id` and "
                    f"`contents` ({type(error).__name__}: {error})"
                ) from error
