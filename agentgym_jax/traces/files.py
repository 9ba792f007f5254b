"""Files of traces: export of a run's recorded episodes, and reading of training traces."""

import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from absl import logging

from agentgym_envs.base.protocol import read_json
from agentgym_jax.episodes.trajectory import Trajectory, from_record
from agentgym_jax.runs.run_folder import RunFolder, visible
from agentgym_jax.traces.atif import to_atif
from agentgym_jax.traces.training_trace import from_training_trace, to_training_trace

FORMATS = ("atif", "training_trace")


def export_traces(trajectories: str, out: str, *, form: str) -> tuple[pathlib.Path, int]:
    """Writes the recorded episodes of a run as traces; returns the directory and their number.

    `atif` writes one JSON file per episode, in a folder per file of the run. `training_trace` writes
    a JSON Lines file per file of the run, one trace per line. Episodes that a training trace cannot
    hold, because nothing was sampled, are left out and counted in the log.

    `trajectories` is a run folder, or one of its files of episodes; `form` is one of FORMATS.

    Raises:
      FileExistsError: `out` exists.
      FileNotFoundError: There are no episodes at `trajectories`.
      ValueError: A record of an episode is damaged.
    """
    target = pathlib.Path(out).expanduser()
    if target.exists():
        raise FileExistsError(f"--out={out} exists: traces are written to a new directory")
    sources = _episode_files(trajectories)
    write: Callable[[pathlib.Path, Iterator[Trajectory]], int]
    write = {"atif": _write_atif, "training_trace": _write_training_traces}[form]
    part = target.with_name(f"{target.name}.part-{os.getpid()}")
    part.mkdir(parents=True)
    try:
        count = sum(write(part / source.stem, _episodes(source)) for source in sources)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target, count


def read_traces(path: str | pathlib.Path) -> list[Trajectory]:
    """Reads training traces from a `.jsonl` file, a `.json` file with one trace, or a folder.

    Raises:
      FileNotFoundError: There is no such file, or the folder has none.
      ValueError: A trace is invalid; the message has its file and line.
    """
    path = pathlib.Path(path)
    files = [path]
    if path.is_dir():
        files = visible(path.glob("*.jsonl")) + visible(path.glob("*.json"))
        if not files:
            raise FileNotFoundError(f"{path} has no .jsonl or .json file of training traces")
    return [
        t for file in files for place, row in _rows(file) for t in from_training_trace(row, place)
    ]


def _episode_files(trajectories: str) -> list[Any]:
    path = pathlib.Path(trajectories).expanduser()
    if path.is_file():
        return [path]
    folder = RunFolder(trajectories)
    files = visible(folder.trajectories.glob("*.jsonl"))
    if not files:
        raise FileNotFoundError(
            f"--trajectories={trajectories}: no .jsonl file in {folder.trajectories}; give a run "
            "folder, or a file of its episodes"
        )
    return files


def _rows(file: Any) -> Iterator[tuple[str, Any]]:
    """Yields the place and the value of each line, or of a whole `.json` file."""
    with file.open("rb") as lines:
        texts = enumerate(lines, 1) if file.name.endswith(".jsonl") else [(1, lines.read())]
        for number, text in texts:
            if text.strip():
                place = f"{file}, line {number}"
                try:
                    yield place, read_json(text)
                except ValueError as error:
                    raise ValueError(f"{place}: not JSON in UTF-8: {error}") from error


def _episodes(file: Any) -> Iterator[Trajectory]:
    for place, row in _rows(file):
        try:
            yield from_record(row)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"{place}: no record of an episode: {error!r}") from error


def _write_atif(target: pathlib.Path, episodes: Iterator[Trajectory]) -> int:
    target.mkdir()
    count = 0
    for count, trajectory in enumerate(episodes, 1):
        path = target / f"{count:06d}.trajectory.json"
        path.write_text(_dump(to_atif(trajectory)), encoding="utf-8")
    return count


def _write_training_traces(target: pathlib.Path, episodes: Iterator[Trajectory]) -> int:
    count = left_out = 0
    with target.with_name(f"{target.name}.jsonl").open("w", encoding="utf-8") as file:
        for trajectory in episodes:
            if trajectory.turns:
                file.write(_dump(to_training_trace(trajectory)))
                count += 1
            else:
                left_out += 1
    if left_out:
        logging.warning("%s: %d episodes without turns left out", target.name, left_out)
    return count


def _dump(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"
