"""Reads conversations: AgentGym's trajectory files and the `trajectories/*.jsonl` of our runs.

Both are records with `item_id` and `conversations`, a list of turns with `from` (`human`, `gpt`,
`system`), `value` and `loss` (null for humans, whether to imitate it for `gpt`). Our own hold more
fields, which are not read here; `trajectory.from_record` reads all of them.
"""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from absl import logging

from agentgym_jax.text.chat import Message, check_roles

ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


@dataclasses.dataclass(frozen=True)
class Conversation:
    """One recorded episode as text.

    Attributes:
      item_id: environment and task index, such as `babyai_17`.
      messages: an optional system message, then users and assistants in turn.
      reward: the episode's reward, in units of its environment; None if not recorded.
      success: whether the task was solved; None if not recorded.
    """

    item_id: str
    messages: tuple[Message, ...]
    reward: float | None = None
    success: bool | None = None


@dataclasses.dataclass(frozen=True)
class ReadResult:
    """What `read_conversations` found.

    Attributes:
      conversations: the good records, in the order of the files.
      problems: one message for every record that was left out.
    """

    conversations: tuple[Conversation, ...]
    problems: tuple[str, ...]


def read_conversations(path: str | pathlib.Path, *, bad: Literal["fatal", "skip"]) -> ReadResult:
    """Reads a `.json` file (a list), a `.jsonl` file, or all `.jsonl` files of a directory.

    Args:
      path: file, or directory whose `.jsonl` files are read in the order of their names.
      bad: what a record that breaks the rules does: `fatal` raises, `skip` leaves it out,
        with a warning that counts them.

    Raises:
      FileNotFoundError: there is nothing at the path, or no `.jsonl` file in the directory.
      ValueError: a bad record under `fatal`, naming file, line and field; no good record at all;
        a `.json` file that is not a JSON list.
    """
    if bad not in ("fatal", "skip"):
        raise ValueError(f"bad is {bad!r}; expected 'fatal' or 'skip'")
    good, problems = [], []
    for file in _files(pathlib.Path(path)):
        for place, load in _records(file):
            try:
                good.append(parse_conversation(load(), place))
            except ValueError as error:
                if bad == "fatal":
                    raise
                problems.append(str(error))
    if problems:
        logging.warning("%s: %d records left out, the first: %s", path, len(problems), problems[0])
    if not good:
        first = f", the first: {problems[0]}" if problems else ""
        raise ValueError(f"{path} has no usable conversation; {len(problems)} bad ones{first}")
    return ReadResult(tuple(good), tuple(problems))


def parse_conversation(record: Any, place: str) -> Conversation:
    """One record as a Conversation.

    Args:
      record: what the JSON holds.
      place: where it stands, for messages.

    Raises:
      ValueError: it breaks the rules.
    """
    if not isinstance(record, dict):
        raise ValueError(f"{place}: expected an object, found {type(record).__name__}")
    item_id = _field(record, "item_id", str, place)
    turns = _field(record, "conversations", list, place)
    messages = tuple(_message(turn, f"{place}: conversations[{i}]") for i, turn in enumerate(turns))
    try:
        check_roles([message.role for message in messages])
    except ValueError as error:
        raise ValueError(f"{place}: conversations: {error}") from error
    return Conversation(
        item_id=item_id,
        messages=messages,
        reward=_number(record, "reward", place),
        success=_success(record, place),
    )


def _message(turn: Any, place: str) -> Message:
    """One turn, with the loss flag that its speaker may have."""
    if not isinstance(turn, dict):
        raise ValueError(f"{place}: expected an object, found {type(turn).__name__}")
    speaker = _field(turn, "from", str, place)
    value = _field(turn, "value", str, place)
    if speaker not in ROLES:
        raise ValueError(f"{place}: 'from' is {speaker!r}; expected one of {list(ROLES)}")
    if "loss" not in turn:
        raise ValueError(f"{place}: field 'loss' is missing; expected null, true or false")
    loss = turn["loss"]
    if speaker == "gpt" and not isinstance(loss, bool):
        raise ValueError(f"{place}: 'loss' is {loss!r}; expected true or false for 'gpt'")
    if speaker != "gpt" and loss not in (None, False):
        raise ValueError(f"{place}: 'loss' is {loss!r}; expected null for {speaker!r}")
    return Message(ROLES[speaker], value, bool(loss))


def _field(record: Mapping[str, Any], name: str, kind: type, place: str) -> Any:
    """A field that must be there and of one type."""
    if name not in record:
        raise ValueError(f"{place}: field {name!r} is missing; there are {sorted(record)}")
    if not isinstance(record[name], kind):
        found = type(record[name]).__name__
        raise ValueError(f"{place}: field {name!r} is {found}, expected {kind.__name__}")
    return record[name]


def _number(record: Mapping[str, Any], name: str, place: str) -> float | None:
    """An optional number; booleans are none."""
    if name not in record or record[name] is None:
        return None
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{place}: field {name!r} is {value!r}, expected a number")
    return float(value)


def _success(record: Mapping[str, Any], place: str) -> bool | None:
    """An optional 0, 1, true or false."""
    if "success" not in record or record["success"] is None:
        return None
    if record["success"] not in (0, 1):
        raise ValueError(f"{place}: field 'success' is {record['success']!r}, expected 0 or 1")
    return bool(record["success"])


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if not path.exists():
        raise FileNotFoundError(f"no conversations at {path}")
    if path.is_file():
        return [path]
    files = sorted(path.glob("*.jsonl"))
    if not files:
        raise FileNotFoundError(f"no .jsonl file in {path}")
    return files


def _records(file: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Place and loader of every record; loading raises ValueError on broken JSON."""
    if file.suffix == ".json":
        values = _parse(file.read_text(encoding="utf-8"), str(file))
        if not isinstance(values, list):
            raise ValueError(f"{file}: expected a JSON list, found {type(values).__name__}")
        for i, value in enumerate(values):
            yield f"{file}, record {i}", lambda value=value: value
    elif file.suffix == ".jsonl":
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                place = f"{file}, line {number}"
                if line.strip():
                    yield place, lambda line=line, place=place: _parse(line, place)
    else:
        raise ValueError(f"{file}: expected a .json or .jsonl file")


def _parse(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not JSON: {error}") from error
