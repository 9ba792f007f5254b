"""Reads trajectory files for the viewer: episode summaries, a bundle per file, texts of tokens."""

import array
import dataclasses
import itertools
import json
import math
import operator
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import tokenizers

from agentgym_jax.episodes.trajectory import Outcome, TokenSource
from agentgym_jax.runs.json_lines import read_lines
from agentgym_jax.runs.run_folder import trajectory_shards
from agentgym_jax.text.tokenizer import BYTE_ALPHABET

_FILE = re.compile(r"(?P<kind>[^.].*)_(?P<step>\d+)\.jsonl")
# Labels that precede the goal in the environments' texts.
_GOAL = re.compile(r"(?:^|\n)(?:Your goal|Goal|Your task is to|OBJECTIVE|Question)[: ]+(.+)")
_LONGEST_GOAL = 120  # characters
# token for a single byte in a sentencepiece vocabulary
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_BYTE_OF = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}
Record = Mapping[str, Any]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, order=True)
class TrajectoryFile:
    """One file of `trajectories/`, with a `name` such as `step_000042`."""

    step: int
    kind: str
    path: pathlib.Path

    @property
    def name(self) -> str:
        """Name of the file in the page's links."""
        return self.path.stem


def trajectory_files(folder: pathlib.Path) -> list[TrajectoryFile]:
    """Returns all trajectory files of a run, sorted by step; evaluation is last within a step."""
    found = [(path, _FILE.fullmatch(path.name)) for path in folder.glob("*.jsonl")]
    files = [TrajectoryFile(int(m["step"]), m["kind"], path) for path, m in found if m]
    return sorted(files, key=lambda f: (f.step, f.kind == "eval", f.kind))


def read_records(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Yields the records of a file and of its shards; raises the error of `read_lines`."""
    return parse_records(path, dict)


def parse_records(path: pathlib.Path, parse: Callable[[Any], T]) -> Iterator[T]:
    """Yields `parse` of each record of a file and of its shards; raises as `read_lines` does."""
    for shard in trajectory_shards(path):
        yield from read_lines(shard, parse)


def environment_of(item_id: str) -> tuple[str, int | None]:
    """Splits an item id: `babyai_17` gives (babyai, 17), and an id without number (id, None)."""
    name, _, number = item_id.rpartition("_")
    return (name, int(number)) if name and number.isdecimal() else (item_id, None)


def goal_of(record: Record) -> str:
    """Returns the labelled goal of the task, or the first line of the task if no label is found."""
    asked = [message["value"] for message in _opening(record) if message["from"] == "human"]
    text = asked[-1] if asked else ""
    match = _GOAL.search(text)
    line = match[1] if match else text.strip().partition("\n")[0]
    return line.strip()[:_LONGEST_GOAL]


def repeated_turns(turns: Sequence[Record]) -> int:
    """Returns the number of turns whose action and observation repeat those of an earlier turn."""
    pairs = [(turn["action"], turn["observation"]) for turn in turns if turn["action"] is not None]
    return len(pairs) - len(set(pairs))


def row_of(record: Record) -> dict[str, Any]:
    """Returns the summary of an episode for the episode list; `entropy` is in nats per token."""
    turns, sampled = record["turns"], _select_actions(record, record["logprobs"])
    # records of older runs lack the field
    has_rejections = all("is_rejected" in turn for turn in turns)
    environment, number = environment_of(record["item_id"])
    return {
        "item": _text(record["item_id"]),
        "environment": environment,
        "number": number,
        "goal": goal_of(record),
        "sample": operator.index(record["sample"]),
        "outcome": str(Outcome(record["outcome"])),
        "reward": _rounded(record["reward"]),
        "score": _rounded(record["score"]),
        "advantage": _largest_advantage(record),
        "success": int(record["success"]),
        "turns": len(turns),
        "tokens": len(sampled),
        "parse_errors": sum(turn["action"] is None for turn in turns),
        "rejected": sum(bool(turn["is_rejected"]) for turn in turns) if has_rejections else None,
        "repeated": repeated_turns(turns),
        "cut": sum(bool(turn["is_cut"]) for turn in turns),
        "entropy": _rounded(-sum(sampled) / len(sampled), 3) if sampled else 0.0,
        "discarded": int(record.get("discarded", False)),
    }


def _largest_advantage(record: Record) -> float | None:
    """Returns the largest advantage of a sampled token; None if no advantages were recorded."""
    if record.get("advantages") is None:
        return None
    return _rounded(max(_select_actions(record, record["advantages"]), default=0.0))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is no text")
    return value


def _rounded(value: Any, digits: int = 4) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value!r:.80} is no finite number")
    return round(value, digits)


def _select_actions(record: Record, values: Sequence[float]) -> list[float]:
    """Returns the values at the positions of sampled tokens."""
    spans = [(turn["action_start"], turn["action_stop"]) for turn in record["turns"]]
    return [value for start, stop in spans for value in values[start:stop]]


def _opening(record: Record) -> Sequence[Mapping[str, str]]:
    """Returns the messages before the agent's first sampled answer."""
    answers = [i for i, m in enumerate(record["conversations"]) if m["from"] == "gpt"]
    sampled = answers[len(answers) - len(record["turns"]) :]
    return record["conversations"][: sampled[0] if sampled else None]


def _number(table: dict[Any, int], key: Any) -> int:
    """Returns the number of a key; a new key gets the next number."""
    return table.setdefault(key, len(table))


class Bundle:
    """Episodes of one file; each text, token sequence and environment state is stored only once.

    Attributes:
      token_ids: All token ids in the bundle; the page needs their texts.
      replayed: Indices of the episodes that were added with the states of a replay.
    """

    def __init__(self) -> None:
        # numbers of texts, of token sequences, and of environment states as JSON
        self._texts: dict[str, int] = {}
        self._runs: dict[tuple[int, ...], int] = {}
        self._worlds: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self.token_ids: set[int] = set()
        self.replayed: list[int] = []

    def add(self, record: Record, worlds: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Adds an episode, with the environment's states at the start and after every turn.

        `worlds` is None if the states are unknown. The optional keys `advantages`,
        `reference_logprobs` and `learner_logprobs` of a record have one number per token.
        """

        def text(value: Any) -> int:
            return _number(self._texts, _text(value))

        versions = _select_actions(record, record["policy_versions"])
        episode: dict[str, Any] = {
            "opening": [
                [_text(message["from"]), text(message["value"])] for message in _opening(record)
            ],
            "turns": [
                [
                    text(turn["text"]),
                    -1 if turn["action"] is None else text(turn["action"]),
                    text(turn["observation"]),
                    _rounded(turn["reward"]),
                    int(turn["is_cut"]) + 2 * int(turn.get("is_rejected", False)),
                ]
                for turn in record["turns"]
            ],
            "runs": self._token_runs(record),
            "logprobs": _milli(_select_actions(record, record["logprobs"])),
            "versions": sorted({version for version in versions if version >= 0}),
            "prompt": sum(source == TokenSource.PROMPT for source in record["sources"]),
            "score": _rounded(record["score"]),
            "seconds": _rounded(record["seconds"]),
            "attempts": operator.index(record["attempts"]),
            "error": _text(record["error"]),
        }
        if record.get("judge_score") is not None:
            episode["judge"] = [_rounded(record["judge_score"]), _text(record["judge_reason"])]
        for key in ("advantages", "reference_logprobs", "learner_logprobs"):
            if record.get(key) is not None:
                episode[key] = _milli(_select_actions(record, record[key]))
        if worlds is not None:
            self.replayed.append(len(self._episodes))
        else:
            worlds = record.get("worlds")
        if worlds is not None:
            states = [json.dumps(world, allow_nan=False) for world in worlds]
            episode["worlds"] = [_number(self._worlds, state) for state in states]
        self._episodes.append(episode)

    def document(self) -> dict[str, Any]:
        """Returns the bundle as JSON types; episodes refer to the stored entries by number."""
        return {
            "texts": list(self._texts),
            "runs": list(self._runs),
            "worlds": [json.loads(world) for world in self._worlds],
            "episodes": self._episodes,
        }

    def _token_runs(self, record: Record) -> list[int]:
        """Returns the numbers of token sequences: the prompt, each action and the text after it."""
        tokens = array.array("I", record["tokens"])  # refuses all but whole numbers from 0
        self.token_ids.update(tokens)
        cuts = [0]
        for turn in record["turns"]:
            cuts += [turn["action_start"], turn["action_stop"]]
        cuts.append(len(tokens))
        return [_number(self._runs, tuple(tokens[i:j])) for i, j in itertools.pairwise(cuts)]


def _milli(values: Sequence[float]) -> list[int]:
    return [round(1000 * value) for value in values]


def token_pieces(directory: pathlib.Path, ids: Iterable[int]) -> dict[int, str]:
    """Returns the bytes of each token, decoded with latin-1 because a token may end inside a
    character.

    Unknown ids are left out. The result is empty if `directory` has no `tokenizer.json`.
    """
    path = directory / "tokenizer.json"
    if not path.exists():
        return {}
    source = path.read_text(encoding="utf-8")
    backend = tokenizers.Tokenizer.from_str(source)
    added = {i: token.content for i, token in backend.get_added_tokens_decoder().items()}
    # the decoder may be a sequence of decoders
    is_byte_level = '"ByteLevel"' in json.dumps(json.loads(source)["decoder"])
    pieces = {}
    for i in ids:
        name = backend.id_to_token(i)
        if i in added:
            pieces[i] = added[i].encode().decode("latin-1")
        elif name is not None:
            pieces[i] = _as_bytes(name, is_byte_level).decode("latin-1")
    return pieces


def _as_bytes(name: str, is_byte_level: bool) -> bytes:
    if is_byte_level and all(character in _BYTE_OF for character in name):
        return bytes(_BYTE_OF[character] for character in name)
    single = _BYTE_TOKEN.fullmatch(name)
    if single:
        return bytes([int(single[1], 16)])
    return name.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()
