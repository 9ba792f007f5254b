"""Results of `agentgym_jax.replay` in a run folder, and the command that makes them."""

import json
import os
import pathlib
import shlex

from absl import logging

from agentgym_jax.runs.run_folder import RunFolder


def replay_files(folder: RunFolder) -> list[pathlib.Path]:
    """Returns the files with the values of turns, sorted by name."""
    return sorted((folder.path / "replays").glob("*.json"))


def episode_credits(folder: RunFolder) -> dict[str, list[float]]:
    """Returns the credit of every action, by episode name such as `step_000012/3`.

    Replays of single turns, and files that are damaged, are left out.
    """
    found = {}
    for path in replay_files(folder):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            name = str(document["episode"])
            credits = [turn["credit"] for turn in document["turns"]]
        except (ValueError, KeyError, TypeError) as error:
            logging.warning("%s has no values of turns: %r", path, error)
            continue
        if credits and None not in credits:
            found[name] = credits
    return found


def replay_command(folder: RunFolder) -> str:
    """Returns the beginning of the command, without the path of folders above the current one."""
    path = os.path.relpath(folder.path)
    shown = folder.path.name if path.startswith(os.pardir) else path
    return f"python -m agentgym_jax.replay {shlex.quote(shown)}"
