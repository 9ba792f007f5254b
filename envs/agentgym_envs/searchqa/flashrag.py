"""Reads question sets, from your own files or from a folder in FlashRAG's layout.

A row is `{"id", "question", "golden_answers": [..]}`, as JSON lines or parquet. In a folder, the
sets are files `<set>/<file>.jsonl` or `.parquet` (FlashRAG, Jin et al. 2024, arXiv:2405.13576).
Their order and item ids are those of AgentGym-RL (arXiv:2509.08755).
"""

import dataclasses
import importlib
import logging
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.protocol import read_json

_LOGGER = logging.getLogger(__name__)
_SUFFIXES = (".jsonl", ".parquet")


@dataclasses.dataclass(frozen=True)
class QuestionSet:
    """One split of a question set.

    Attributes:
      name: Name of the set, as in reports.
      files: Possible paths below the folder, without suffix.
      first: AgentGym-RL's item id of the set's first row.
    """

    name: str
    files: tuple[str, ...]
    split: str
    first: int
    rows: int


SETS = (
    QuestionSet("nq", ("nq/test",), manifest.TEST, 0, 3_610),
    QuestionSet("triviaqa", ("triviaqa/test",), manifest.TEST, 3_610, 11_313),
    QuestionSet("popqa", ("popqa/test",), manifest.TEST, 14_923, 14_267),
    QuestionSet("hotpotqa", ("hotpotqa/dev",), manifest.TEST, 29_190, 7_405),
    QuestionSet(
        "2wikimultihopqa", ("2wikimultihopqa/dev", "2wiki/dev"), manifest.TEST, 36_595, 12_576
    ),
    QuestionSet("musique", ("musique/dev",), manifest.TEST, 49_171, 2_417),
    QuestionSet("bamboogle", ("bamboogle/test",), manifest.TEST, 51_588, 125),
    QuestionSet("nq", ("nq/train",), manifest.TRAIN, 51_713, 79_168),
    QuestionSet("hotpotqa", ("hotpotqa/train",), manifest.TRAIN, 130_881, 90_447),
)


@dataclasses.dataclass(frozen=True)
class Source:
    """File of questions.

    Attributes:
      split: Split of the rows. If empty, each row names its split; `test` is the default.
      first: AgentGym-RL's item id of the first row; -1 if there is none.
    """

    path: pathlib.Path
    dataset: str
    split: str
    first: int


def sources(path: pathlib.Path) -> list[Source]:
    """Returns the file at a path, or the files of the sets if the path is a folder.

    Raises:
      SetupError: No file was found.
    """
    if path.is_file():
        return [Source(path, path.stem, "", -1)]
    found = []
    for part in SETS:
        files = [path / f"{name}{suffix}" for name in part.files for suffix in _SUFFIXES]
        existing = [file for file in files if file.is_file()]
        if existing:
            found.append(Source(existing[0], part.name, part.split, part.first))
    if not found:
        names = ", ".join(sorted({part.files[0] for part in SETS}))
        raise SetupError(
            f"searchqa: {path} is no file of questions, and no folder with one of {names} "
            "(.jsonl or .parquet)"
        )
    return found


def warn_of_other_sizes(source: Source, rows: int) -> None:
    """Warns if a set has an unexpected size, because item ids then differ from AgentGym-RL's."""
    for part in SETS:
        if part.first == source.first and part.rows != rows:
            _LOGGER.warning(
                "%s has %d rows; AgentGym-RL's item ids are those of %d",
                source.path,
                rows,
                part.rows,
            )


def rows(path: pathlib.Path) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of a file.

    Raises:
      SetupError: The file cannot be read.
    """
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield read_json(line)
            except ValueError as error:
                raise SetupError(f"searchqa: {path}, line {number}: no JSON ({error})") from error


def _parquet(path: pathlib.Path) -> Iterator[Mapping[str, Any]]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise SetupError(
            f"searchqa: {path} needs pyarrow. Install it (pip install pyarrow), or give JSON lines"
        ) from error
    for batch in parquet.ParquetFile(path).iter_batches(
        columns=["id", "question", "golden_answers"]
    ):
        yield from batch.to_pylist()
