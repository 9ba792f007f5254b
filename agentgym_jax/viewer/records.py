"""Trajectory files as a page wants them: rows of a list, and one compact bundle per file.

A bundle holds every text and every run of tokens once: the samples of a group share their prompt,
and most answers of an environment come again and again.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from agentgym_jax.trajectory import TokenSource

_FILE = re.compile(r"(?P<kind>.+)_(?P<step>\d+)\.jsonl")
# How the environments name the goal, else the first line of the task is shown.
_GOAL = re.compile(r"(?:^|\n)(?:Your goal|Goal|Your task is to|OBJECTIVE|Question)[: ]+(.+)")
_LONGEST_GOAL = 120  # characters
_MILLI = 1000  # numbers of tokens are stored in thousandths
Record = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, order=True)
class TrajectoryFile:
    """One file of `trajectories/`; `name` is `step_000042`."""

    step: int
    kind: str
    path: pathlib.Path

    @property
    def name(self) -> str:
        """As in the page's links."""
        return self.path.stem


def trajectory_files(folder: pathlib.Path) -> list[TrajectoryFile]:
    """All files of a run by step; an evaluation comes before the training that follows it."""
    found = [(path, _FILE.fullmatch(path.name)) for path in folder.glob("*.jsonl")]
    files = [TrajectoryFile(int(m["step"]), m["kind"], path) for path, m in found if m]
    return sorted(files, key=lambda f: (f.step, f.kind == "eval", f.kind))


def read_records(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """The episodes of a file.

    Raises:
      ValueError: a line is not JSON; the message has its number.
    """
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number} is not JSON: {error.msg}") from None


def environment_of(item_id: str) -> tuple[str, int | None]:
    """`babyai_17` -> (babyai, 17); the number is None where there is none."""
    name, _, number = item_id.rpartition("_")
    return (name, int(number)) if name and number.isdecimal() else (item_id, None)


def goal_of(record: Record) -> str:
    """What the task asks for, in a line."""
    answered = _own_answers(record)
    opening = record["conversations"][: answered[0] if answered else None]
    asked = [message["value"] for message in opening if message["from"] == "human"]
    text = asked[-1] if asked else ""
    match = _GOAL.search(text)
    line = match[1] if match else text.strip().partition("\n")[0]
    return line.strip()[:_LONGEST_GOAL]


def repeated_turns(turns: Sequence[Record]) -> int:
    """Turns that did what an earlier turn of the episode did, and were answered the same."""
    pairs = [(turn["action"], turn["observation"]) for turn in turns if turn["action"] is not None]
    return len(pairs) - len(set(pairs))


def _refused(turn: Record) -> bool:
    """False in records of older runs, which do not say it."""
    return "is_refused" in turn and bool(turn["is_refused"])


def _refusals(turns: Sequence[Record]) -> int | None:
    """How many turns were refused; None if the record does not say it."""
    if not all("is_refused" in turn for turn in turns):
        return None
    return sum(_refused(turn) for turn in turns)


def row_of(record: Record) -> dict[str, Any]:
    """What the list says about an episode; numbers are rounded, `entropy` is nats per token."""
    turns, sampled = record["turns"], _of_actions(record, record["logprobs"])
    environment, number = environment_of(record["item_id"])
    return {
        "item": record["item_id"],
        "environment": environment,
        "number": number,
        "goal": goal_of(record),
        "sample": record["sample"],
        "outcome": record["outcome"],
        "reward": round(record["reward"], 4),
        "success": int(record["success"]),
        "turns": len(turns),
        "tokens": len(sampled),
        "malformed": sum(turn["action"] is None for turn in turns),
        "refused": _refusals(turns),
        "repeated": repeated_turns(turns),
        "cut": sum(turn["is_cut"] for turn in turns),
        "entropy": round(-sum(sampled) / len(sampled), 3) if sampled else 0.0,
        "discarded": int("discarded" in record and record["discarded"]),
    }


def _of_actions(record: Record, values: Sequence[float]) -> list[float]:
    """Of one value a token, those of the sampled ones."""
    spans = [(turn["action_start"], turn["action_stop"]) for turn in record["turns"]]
    return [value for start, stop in spans for value in values[start:stop]]


def _own_answers(record: Record) -> list[int]:
    """Where in the conversation the episode's own answers stand."""
    answers = [i for i, m in enumerate(record["conversations"]) if m["from"] == "gpt"]
    return answers[len(answers) - len(record["turns"]) :]


class _Table:
    """Values by number, each kept once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: Any, key: Hashable = None) -> int:
        """The number of a value; `key` stands for one that cannot be hashed."""
        key = value if key is None else key
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


class Bundle:
    """The episodes of one file in a compact form; `document` is what the page decodes.

    Attributes:
      token_ids: all that occur, to know whose text is wanted.
    """

    def __init__(self) -> None:
        self._texts, self._runs, self._worlds = _Table(), _Table(), _Table()
        self._episodes: list[dict[str, Any]] = []
        self.token_ids: set[int] = set()

    def add(self, record: Record, worlds: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Appends an episode.

        Args:
          record: as `trajectory.to_record` makes it, older ones included. Optional keys with a
            number per token, 0 off the actions: `advantages`, `reference_logprobs`,
            `learner_logprobs`; and `worlds`, as below.
          worlds: state of the environment at the start and after every turn.
        """
        text = self._texts.number
        answers = _own_answers(record)
        opening = record["conversations"][: answers[0] if answers else None]
        episode: dict[str, Any] = {
            "opening": [[message["from"], text(message["value"])] for message in opening],
            "turns": [
                [
                    text(turn["text"]),
                    -1 if turn["action"] is None else text(turn["action"]),
                    text(turn["observation"]),
                    round(turn["reward"], 4),
                    int(turn["is_cut"]) + 2 * int(_refused(turn)),
                ]
                for turn in record["turns"]
            ],
            "runs": self._token_runs(record),
            "logprobs": _milli(_of_actions(record, record["logprobs"])),
            "versions": sorted(
                {v for v in _of_actions(record, record["policy_versions"]) if v >= 0}
            ),
            "prompt": sum(source == TokenSource.PROMPT for source in record["sources"]),
            "score": round(record["score"], 4),
            "seconds": record["seconds"],
            "attempts": record["attempts"],
            "error": record["error"],
        }
        for key in ("advantages", "reference_logprobs", "learner_logprobs"):
            if key in record and record[key] is not None:
                episode[key] = _milli(_of_actions(record, record[key]))
        if worlds is None and "worlds" in record:
            worlds = record["worlds"]
        if worlds is not None:
            episode["worlds"] = [
                self._worlds.number(world, json.dumps(world, sort_keys=True)) for world in worlds
            ]
        self._episodes.append(episode)

    def document(self) -> dict[str, Any]:
        """JSON types: tables of texts, token runs and worlds, and episodes that point into them."""
        return {
            "texts": self._texts.values,
            "runs": self._runs.values,
            "worlds": self._worlds.values,
            "episodes": self._episodes,
        }

    def _token_runs(self, record: Record) -> list[int]:
        """Numbers of runs: the prompt, then of every turn its action and what follows it."""
        cuts = [0]
        for turn in record["turns"]:
            cuts += [turn["action_start"], turn["action_stop"]]
        cuts.append(len(record["tokens"]))
        tokens = record["tokens"]
        self.token_ids.update(tokens)
        runs = [tokens[start:stop] for start, stop in zip(cuts, cuts[1:], strict=False)]
        return [self._runs.number(run, tuple(run)) for run in runs]


def _milli(values: Sequence[float]) -> list[int]:
    return [round(_MILLI * value) for value in values]
