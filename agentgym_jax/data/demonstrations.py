"""Records demonstrations of scripted agents in a process of the environment package."""

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from agentgym_jax.checks.limits import Range
from agentgym_jax.client.embedded import ServerFailed, last_words, option_arguments
from agentgym_jax.data.conversations import Conversation, read_conversations
from agentgym_jax.data.tasks import Task
from agentgym_jax.mesh import processes
from agentgym_jax.runs.run_folder import RunFolder


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

    Raises:
      ServerFailed: The recording process failed.
      KeyboardInterrupt: Ctrl-C ended it.
    """
    environments = {task.environment for task in tasks}
    if len(environments) != 1:
        raise ValueError(f"demonstrations of one environment at a time, got {environments}")
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = path.with_suffix(".tasks.json")
    listed.write_text(json.dumps([{"item_id": task.item_id} for task in tasks]))
    partial = path.with_suffix(".partial")
    command = [sys.executable, "-m", "agentgym_envs", "demonstrations"]
    command += [module or environments.pop(), "--tasks-file", str(listed), "--agent", agent]
    command += ["--epsilon", str(epsilon), "--max-turns", str(max_turns)]
    command += ["--seed", str(seed), "--out", str(partial), *option_arguments(options or {})]
    command += ["--log-level=debug"]  # the log gets the traceback of an error
    log = path.with_suffix(".log")
    with log.open("wb") as output:
        result = subprocess.run(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    if result.returncode == 128 + signal.SIGINT:  # a terminal sends Ctrl-C to both processes
        raise KeyboardInterrupt
    if result.returncode:
        reason = last_words(log.read_text(errors="replace")).removeprefix("agentgym_envs: ")
        raise ServerFailed(
            f"recording demonstrations failed with status {result.returncode}: {reason} (log: {log})"
        )
    log.unlink()
    os.replace(partial, path)


def record_sets(
    sets: Mapping[str, tuple[Sequence[Task], Mapping[str, Any]]], folder: RunFolder
) -> list[Conversation]:
    """Returns all conversations; records each set (tasks and options) whose file is missing."""
    conversations = []
    for name, (tasks, options) in sets.items():
        path = folder.data / f"{name}.jsonl"
        with folder.writer_first():
            if processes.is_writer() and not path.exists():
                record(tasks, path, **options)
        conversations += read_conversations(path, bad="fatal")
    return conversations
