"""File of verdicts, so that a resumed run does not pay for them again."""

import dataclasses
import json
import pathlib
from typing import Any

from absl import logging

from agentgym_jax.runs.atomic_files import disk_errors


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Score of an episode.

    Attributes:
      score: Score in points, 0 to the rubric's best score.
      reason: Reason in the judge's words.
      prompt_tokens: Tokens of all prompts for this score, as counted by the endpoint.
      completion_tokens: Tokens of all answers.
    """

    score: float
    reason: str
    prompt_tokens: int = 0
    completion_tokens: int = 0


class VerdictCache:
    """Verdicts by key, in JSON lines. One thread at a time may use it.

    Args:
      folder: Folder with the files of all processes; it is made by the caller.
      process: Number of this process, which writes `judge_cache.jsonl`, or `judge_cache.1.jsonl` for
        process 1. Files of other processes are only read.
    """

    def __init__(self, folder: pathlib.Path, process: int = 0):
        self._path = folder / f"judge_cache{f'.{process}' if process else ''}.jsonl"
        self._verdicts: dict[str, Verdict] = {}
        for path in sorted(folder.glob("judge_cache*.jsonl")):
            self._read(path)
        old = self._path.read_bytes() if self._path.exists() else b""
        self._is_torn = bool(old) and not old.endswith(b"\n")

    def find(self, key: str) -> Verdict | None:
        """Returns the verdict with this key, or None."""
        return self._verdicts[key] if key in self._verdicts else None

    def add(self, key: str, verdict: Verdict) -> None:
        """Adds a verdict, which is on disk when this method returns.

        Raises:
          RunFolderError: The file cannot be written.
        """
        line = json.dumps({"key": key, **dataclasses.asdict(verdict)}) + "\n"
        with disk_errors(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write("\n" + line if self._is_torn else line)
        self._is_torn = False
        self._verdicts[key] = verdict

    def _read(self, path: pathlib.Path) -> None:
        """Reads a file; a process that was killed may have left an incomplete line."""
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        found = [_parse(line) for line in lines if line]
        self._verdicts |= dict(entry for entry in found if entry is not None)
        if None in found:
            logging.warning("%s: ignored %d incomplete lines", path, found.count(None))


def _parse(line: str) -> tuple[str, Verdict] | None:
    """Returns key and verdict of a line, or None if the line is incomplete."""
    try:
        entry: dict[str, Any] = json.loads(line)
        return entry.pop("key"), Verdict(**entry | {"score": float(entry["score"])})
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
