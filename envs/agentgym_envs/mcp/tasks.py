"""Tasks of an MCP server: one JSON object per line, with a question and its answer or checker.

{"instruction": "How many apples are in stock?", "answer": 3}
{"instruction": "Add a fig.", "checker": {"tool": "stock", "arguments": {"item": "fig"}, "expected": 8}}
{"instruction": "Name an even number.", "checker": "my_checks:is_even"}
"""

import dataclasses
import hashlib
import importlib
import json
import math
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.protocol import SCORE_TOLERANCE, plain_number, read_json
from agentgym_envs.base.user_code import BadResult, loading
from agentgym_envs.searchqa.scoring import is_right

MAX_LINE_CHARACTERS = 100_000
TEST_EVERY = 5  # every fifth task is a test task if no task names its split
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_SEPARATOR = re.compile(r",(?![0-9]{3}(?![0-9]))")
_FIELDS = {"instruction", "answer", "checker", "solution", "split"}

# Calls a tool of the episode's server and returns the text of its result.
Call = Callable[[str, Mapping[str, Any]], str]
# Returns the score of an answer between 0 and 1, given the row of the file.
Checker = Callable[[Mapping[str, Any], str, Call], float]


@dataclasses.dataclass(frozen=True)
class Task:
    """A row of the file."""

    row: Mapping[str, Any]
    place: str
    check: Checker

    @property
    def calls(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Returns the calls of a solution before the answer."""
        return [
            (call["name"], call.get("arguments") or {}) for call in self.row.get("solution", ())
        ]

    @property
    def answer(self) -> str | None:
        """Returns a right answer; None if a checker decides and there is no solution."""
        if "answer" in self.row:
            return _answers(self.row)[0]
        return "" if "solution" in self.row else None

    @property
    def tools(self) -> set[str]:
        """Returns the names of the tools that the row uses."""
        checker = self.row.get("checker")
        names = {checker["tool"]} if isinstance(checker, dict) else set()
        return names | {name for name, _ in self.calls}


def read_tasks(path: str) -> list[Task]:
    """Reads a file of tasks.

    Raises:
      SetupError: The file cannot be read, or a line is wrong; the message names file and line.
    """
    try:
        text = pathlib.Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"tasks={path!r}: {error}. Give a file of JSON lines in UTF-8") from error
    # Not `splitlines`, which also splits at characters that JSON texts may contain.
    numbered = [(i, line) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not numbered:
        raise SetupError(
            f"tasks={path!r}: the file has no tasks, expected one JSON object per line"
        )
    return [_read_line(line, f"{path}:{number}") for number, line in numbered]


def rows(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Returns the manifest: split and instruction of each task, and a hash of all its fields."""
    is_split = any("split" in task.row for task in tasks)
    return [
        {
            "data_idx": i,
            "split": task.row.get("split", manifest.TRAIN) if is_split else _split_of(i),
            "instruction": task.row["instruction"],
            "sha256": hashlib.sha256(json.dumps(task.row, sort_keys=True).encode()).hexdigest(),
        }
        for i, task in enumerate(tasks)
    ]


def _split_of(index: int) -> str:
    return manifest.TEST if index % TEST_EVERY == TEST_EVERY - 1 else manifest.TRAIN


def _read_line(line: str, place: str) -> Task:
    if len(line) > MAX_LINE_CHARACTERS:
        raise SetupError(f"{place}: {len(line)} characters, at most {MAX_LINE_CHARACTERS} are read")
    try:
        row = read_json(line)
    except ValueError as error:
        raise SetupError(f"{place}: no JSON ({error})") from error
    return make_task(row, place)


def make_task(row: Any, place: str) -> Task:
    """Returns the task of a row.

    Raises:
      SetupError: The row is wrong; the message begins with `place`.
    """
    if not isinstance(row, dict) or (unknown := sorted(row.keys() - _FIELDS)):
        found = f"the fields {unknown}" if isinstance(row, dict) else f"{row!r:.100}"
        raise SetupError(f"{place}: {found}, expected an object with {', '.join(sorted(_FIELDS))}")
    instruction = row.get("instruction")
    if not isinstance(instruction, str) or not instruction.strip():
        raise SetupError(f"{place}: instruction={instruction!r:.100}, expected a text")
    if ("answer" in row) == ("checker" in row):
        raise SetupError(f"{place}: expected either an answer or a checker")
    if row.get("split", manifest.TRAIN) not in manifest.SPLITS:
        raise SetupError(f"{place}: split={row['split']!r:.100}, expected one of {manifest.SPLITS}")
    solution = row.get("solution", [])
    if not isinstance(solution, list) or not all(map(_is_call, solution)):
        raise SetupError(
            f'{place}: solution={solution!r:.100}, expected a list of {{"name", "arguments"}}'
        )
    return Task(row, place, _checker(row, place))


def _is_call(call: Any) -> bool:
    return (
        isinstance(call, dict)
        and isinstance(call.get("name"), str)
        and isinstance(call.get("arguments"), dict | None)
    )


def _checker(row: Mapping[str, Any], place: str) -> Checker:
    if "answer" in row:
        answers = _answers(row)
        if not answers or not all(answers):
            raise SetupError(
                f"{place}: answer={row['answer']!r:.100}, expected a text, a number or a list of them"
            )
        return lambda row, answer, call: float(any(is_same(answer, right) for right in answers))
    checker = row["checker"]
    if isinstance(checker, str):
        return _load(checker, place)
    if (
        not isinstance(checker, dict)
        or checker.keys() - {"tool", "arguments", "expected"}
        or not isinstance(checker.get("tool"), str)
        or not isinstance(checker.get("arguments"), dict | None)
        or not _scalar(checker.get("expected", True))
    ):
        raise SetupError(
            f"{place}: checker={checker!r:.100}, expected 'module:function' or an object with "
            "`tool`, `arguments` and `expected` (a text, a number or a truth value)"
        )
    tool, arguments = checker["tool"], checker.get("arguments") or {}
    expected = _scalar(checker.get("expected", True))
    return lambda row, answer, call: float(is_same(call(tool, arguments), expected))


def _load(name: str, place: str) -> Checker:
    module, colon, function = name.partition(":")
    if not colon:
        raise SetupError(f"{place}: checker={name!r}, expected 'module:function'")
    try:
        with loading(f"{place}: checker={name!r} cannot be imported", besides=(ImportError,)):
            found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise SetupError(f"{place}: checker={name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise SetupError(f"{place}: checker={name!r} is {found!r:.100}, expected a function")

    def check(row: Mapping[str, Any], answer: str, call: Call) -> float:
        score = plain_number(found(row, answer, call))
        in_range = isinstance(score, int | float) and (
            -SCORE_TOLERANCE <= score <= 1 + SCORE_TOLERANCE  # False for NaN
        )
        if not in_range:
            problem = f"is {score!r:.100}, expected a number from 0 to 1"
            raise BadResult(found, "the score", problem)
        return min(1.0, max(0.0, float(score)))

    return check


def _answers(row: Mapping[str, Any]) -> list[str]:
    answer = row["answer"]
    return [_scalar(entry) for entry in (answer if isinstance(answer, list) else [answer])]


def _scalar(value: Any) -> str:
    """Returns a text, number or truth value as text; empty for other values."""
    if isinstance(value, str):
        return value.strip()
    return json.dumps(value) if isinstance(value, bool | int | float) else ""


def is_same(given: str, right: str) -> bool:
    """Returns True for equal numbers, or texts that are equal as in SQuAD (searchqa.scoring).

    A comma separates words, unless it groups the digits of a number.
    """
    number = _number(right)
    if number is not None:
        return _number(given) == number
    return given.strip() == right or is_right(
        _SEPARATOR.sub(", ", given), [_SEPARATOR.sub(", ", right)]
    )


def _number(text: str) -> float | None:
    text = text.strip()
    text = text.replace(",", "") if _GROUPED.fullmatch(text) else text
    try:
        return int(text)  # exact, also for long numbers
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None  # `nan` is not equal to itself
