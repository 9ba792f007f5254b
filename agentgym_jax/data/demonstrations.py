"""Demonstrations of scripted players, made by the environment package's own command.

The environments run in a process of their own, as their servers do: training imports none of them.
"""

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from absl import logging

from agentgym_jax.data.conversations import Conversation, read_conversations
from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.embedded import ServerFailed, last_words, option_arguments
from agentgym_jax.limits import Range


def record(
    tasks: Sequence[Task],
    path: pathlib.Path,
    *,
    player: Literal["expert", "random", "mixed"],
    epsilon: Annotated[float, Range(0, 1)],
    max_turns: Annotated[int, Range(1, unit="turns")],
    seed: Annotated[int, Range(0)],
    module: str = "",
    options: Mapping[str, Any] | None = None,
) -> None:
    """Plays every task once and writes AgentGym's conversation records, one a line.

    Args:
      tasks: of one environment.
      path: where to; written in one rename, so that it is whole or absent.
      player: Scripted player: `expert`, `random` (any valid action) or `mixed`.
      epsilon: Probability per turn of a random detour, which is not imitated.
      max_turns: Turn limit of an episode.
      seed: Random seed of the player.
      module: Module of the environment; empty for a shipped one.
      options: Options of the environment; None for none.

    Raises:
      ServerFailed: the command failed; its last words are in the message.
    """
    environments = {task.environment for task in tasks}
    if len(environments) != 1:
        raise ValueError(f"demonstrations of one environment at a time, got {environments}")
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = path.with_suffix(".tasks.json")
    listed.write_text(json.dumps([{"item_id": task.item_id} for task in tasks]))
    partial = path.with_suffix(".partial")
    command = [
        sys.executable,
        "-m",
        "agentgym_envs",
        "demonstrations",
        module or environments.pop(),
    ]
    command += ["--tasks-file", str(listed), "--player", player, "--epsilon", str(epsilon)]
    command += ["--max-turns", str(max_turns), "--seed", str(seed), "--out", str(partial)]
    command += option_arguments(options or {})
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode:
        logging.info("recording demonstrations wrote:\n%s", result.stderr)
        raise ServerFailed(
            f"recording demonstrations failed with status {result.returncode}. It wrote: "
            f"{last_words(result.stderr)}"
        )
    os.replace(partial, path)


def record_sets(
    sets: Mapping[str, tuple[Sequence[Task], Mapping[str, Any]]], folder: pathlib.Path
) -> list[Conversation]:
    """Records every set that is not there yet, and reads all of them in order.

    Args:
      sets: name -> (tasks, keyword arguments of `record`).
      folder: one file per set.
    """
    conversations = []
    for name, (tasks, options) in sets.items():
        path = folder / f"{name}.jsonl"
        if not path.exists():
            record(tasks, path, **options)
        conversations += read_conversations(path, bad="fatal").conversations
    return conversations
