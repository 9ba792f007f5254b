"""Questions of an environment, imported once into a compact file and read by number."""

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_envs.artifacts import build_once
from agentgym_envs.base import manifest
from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa import flashrag
from agentgym_envs.searchqa.building import fingerprint, say
from agentgym_envs.searchqa.lines import Lines, write_offsets

_FORMAT = "1"  # change this when a folder must be rebuilt
_LONG = 20_000  # minimum number of rows for which an import is announced
# fields of a row that are copied to its task in the manifest
_FACTS = ("kind", "template")


@dataclasses.dataclass(frozen=True)
class Question:
    """One question with its golden answers."""

    id: str
    question: str
    golden_answers: tuple[str, ...]
    row: Mapping[str, Any]


class Questions(Sequence[Question]):
    """Sequence of questions by task index."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._lines = Lines(folder / "questions.jsonl", folder / "offsets.npy")
        self.metadata = json.loads((folder / "metadata.json").read_text(encoding="utf-8"))

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, number: Any) -> Any:
        row = json.loads(self._lines[number])
        return Question(row["id"], row["question"], tuple(row["golden_answers"]), row)

    @functools.cached_property
    def tasks(self) -> tuple[dict[str, Any], ...]:
        """Returns the task manifest."""
        return tuple(json.loads((self._folder / "manifest.json").read_text(encoding="utf-8")))


def import_questions(path: pathlib.Path, folder: pathlib.Path, dataset: str = "") -> Questions:
    """Returns the questions of a file or of a folder of sets; imports them first if necessary.

    If the name of the data set is empty, the name of the file is used.

    Raises:
      SetupError: The questions cannot be read.
    """
    if not path.exists():
        raise SetupError(f"searchqa: there are no questions at {path}")
    found = flashrag.sources(path)
    key = fingerprint([source.path for source in found], _FORMAT, dataset)
    made = folder / f"questions-{key}"
    build_once(made, lambda unfinished: _import(found, unfinished, dataset), say)
    return Questions(made)


def _import(found: Sequence[flashrag.Source], folder: pathlib.Path, dataset: str) -> None:
    tasks: list[dict[str, Any]] = []
    counts = {}
    with (folder / "questions.jsonl").open("w", encoding="utf-8") as file:
        for source in found:
            before = len(tasks)
            for number, row in enumerate(flashrag.rows(source.path)):
                where = f"{source.path}, row {number + 1}"
                kept = _checked(row, where, source.split) | {"dataset": dataset or source.dataset}
                tasks.append(_task(len(tasks), kept, source, number))
                file.write(json.dumps(kept, ensure_ascii=False) + "\n")
                if len(tasks) == _LONG:
                    say(f"importing the questions of {source.path} and the sets next to it, once")
            flashrag.warn_of_other_sizes(source, len(tasks) - before)
            counts[str(source.path)] = len(tasks) - before
    if not tasks:
        raise SetupError(f"searchqa: {found[0].path} has no questions")
    with (folder / "questions.jsonl").open("rb") as written:
        write_offsets(written, folder / "offsets.npy")
    manifest.check(tasks)
    (folder / "manifest.json").write_bytes(manifest.canonical_json(tasks))
    metadata = {"manifest_sha256": manifest.sha256(tasks), "rows": counts}
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=1), encoding="utf-8")


def _checked(row: Any, where: str, split: str) -> dict[str, Any]:
    """Returns all fields of a row except `metadata`, which can hold whole articles.

    If `split` is empty, the row can name its split.

    Raises:
      SetupError: A field is missing or wrong.
    """
    if not isinstance(row, dict):
        raise SetupError(f"searchqa: {where} is {row!r:.100}, expected an object")
    answers = row.get("golden_answers")
    answers = [answers] if isinstance(answers, str) else answers
    question = row.get("question")
    if (
        not isinstance(question, str)
        or not question
        or not isinstance(answers, list | tuple)
        or not all(isinstance(answer, str | int | float) for answer in answers)
    ):
        raise SetupError(
            f"searchqa: {where} has no question with golden_answers, but the keys {sorted(row)}"
        )
    if (found := split or row.get("split", manifest.TEST)) not in manifest.SPLITS:
        raise SetupError(
            f"searchqa: {where} has the split {found!r:.100}, expected one of {manifest.SPLITS}"
        )
    kept = {key: value for key, value in row.items() if key != "metadata"}
    return kept | {"id": str(row.get("id", "")), "golden_answers": [str(a) for a in answers]}


def _task(
    data_idx: int, row: Mapping[str, Any], source: flashrag.Source, number: int
) -> dict[str, Any]:
    """Returns the manifest entry of a question; its digest covers the question and the answers."""
    content = json.dumps([row["question"], row["golden_answers"]])
    task = {
        "data_idx": data_idx,
        "split": source.split or row.get("split", manifest.TEST),
        "dataset": row["dataset"],
        "id": row["id"],
        "digest": hashlib.sha256(content.encode()).hexdigest()[:12],
    }
    if source.first >= 0:
        task["upstream_idx"] = source.first + number
    return task | {fact: row[fact] for fact in _FACTS if fact in row}
