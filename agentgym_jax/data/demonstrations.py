"""Records demonstrations of scripted agents in a process of the environment package."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Annotated, Any, Literal

from agentgym_jax.checks.limits import Range
from agentgym_jax.client.embedded import ServerFailed, last_words, option_arguments
from agentgym_jax.data.conversations import Conversation, read_conversations
from agentgym_jax.data.tasks import Task
from agentgym_jax.mesh import processes
from agentgym_jax.runs.atomic_files import disk_errors
from agentgym_jax.runs.run_folder import RunFolder

_PROGRESS_S = 1.0  # pause between two counts of the recorded episodes, in seconds


def record(
    tasks: Sequence[Task],
    path: pathlib.Path,
    *,
    agent: Literal["expert", "random", "mixed"],
    epsilon: Annotated[float, Range(0, 1)],
    max_turns: Annotated[int, Range(1, unit="turns")],
    seed: Annotated[int, Range(0)],
    module: str = "",
    options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Runs one episode of every task and writes conversations in AgentGym's format, one per line.

    Args:
      tasks: Tasks of one environment.
      path: Output file. It is renamed when complete, so it is never partial.
      agent: Scripted agent: `expert`, `random` (any valid action) or `mixed`.
      epsilon: Probability per turn of random actions; these actions are not imitated.
      max_turns: Turn limit of an episode.
      seed: Random seed of the agent.
      module: Python module of the environment; empty for a shipped environment. In a config, for
        the one in `environments`.
      options: Options of the environment; None for the defaults. In a config, for those in
        `environments`.
      on_progress: Called about once per second with the number of recorded episodes.

    Raises:
      ServerFailed: The recording process failed.
      KeyboardInterrupt: Ctrl-C ended it.
    """
    environments = {task.environment for task in tasks}
    if len(environments) != 1:
        raise ValueError(f"demonstrations of one environment at a time, got {environments}")
    listed = path.with_suffix(".tasks.json")
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text(json.dumps([{"item_id": task.item_id} for task in tasks]))
    partial = path.with_suffix(".partial")
    command = [sys.executable, "-m", "agentgym_envs", "demonstrations"]
    command += [module or environments.pop(), "--tasks-file", str(listed), "--agent", agent]
    command += ["--epsilon", str(epsilon), "--max-turns", str(max_turns)]
    command += ["--seed", str(seed), "--out", str(partial), *option_arguments(options or {})]
    command += ["--log-level=debug"]  # the log gets the traceback of an error
    log = path.with_suffix(".log")
    written = partial.with_name(f"{partial.name}.partial")  # of the recording process
    for old in (written, partial):
        old.unlink(missing_ok=True)
    with log.open("wb") as output:
        status = _run(command, output, lambda: on_progress(_count_lines(written, partial)))
    if status == 128 + signal.SIGINT:  # a terminal sends Ctrl-C to both processes
        raise KeyboardInterrupt
    if status:
        reason = last_words(log.read_text(errors="replace")).removeprefix("agentgym_envs: ")
        raise ServerFailed(
            f"recording demonstrations failed with status {status}: {reason} (log: {log})"
        )
    log.unlink()
    os.replace(partial, path)


def _run(command: Sequence[str], output: IO[bytes], check: Callable[[], None]) -> int:
    """Runs a command and calls `check` until it ends; returns its status."""
    with subprocess.Popen(
        command, stdout=output, stderr=output, stdin=subprocess.DEVNULL
    ) as process:
        try:
            while True:
                try:
                    return process.wait(_PROGRESS_S)
                except subprocess.TimeoutExpired:
                    check()
        except BaseException:
            process.kill()
            raise


def _count_lines(*paths: pathlib.Path) -> int:
    """Returns the number of lines of the first file that exists; 0 if there is none."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            return sum(1 for _ in file)
    return 0


def record_sets(
    sets: Mapping[str, tuple[Sequence[Task], Mapping[str, Any]]],
    folder: RunFolder,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Conversation]:
    """Returns all conversations; records each set (tasks and options) whose file is missing.

    `on_progress` is called with the numbers of recorded episodes and of all that are missing.
    """
    conversations = []
    paths = {name: folder.data / f"{name}.jsonl" for name in sets}
    missing = {name: len(sets[name][0]) for name, path in paths.items() if not path.exists()}
    before, total = 0, sum(missing.values())
    for name, (tasks, options) in sets.items():
        with folder.writer_first():
            if processes.is_writer() and name in missing:
                on_progress(before, total)
                report = lambda done, before=before: on_progress(before + done, total)
                record(tasks, paths[name], on_progress=report, **options)
                before += missing[name]
        conversations += read_conversations(paths[name], bad="fatal")
    return conversations
