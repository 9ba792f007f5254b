"""Kinds of folders that `--workdir` can name, found by their files."""

import json
import pathlib

from agentgym_jax.runs.atomic_files import RunFolderError

TRAINING = "a training run"
EVALUATION = "an evaluation"
SWEEP = "a sweep"
TINKER = "saved weights of Tinker's API"
_MODEL = "a model"


def find_kind(folder: pathlib.Path) -> str:
    """Returns what a folder holds; empty if it is none of the known kinds."""
    if (folder / "sweep.json").exists():
        return SWEEP
    if any(folder.glob("*_train_*/*weights")):
        return TINKER
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = None
    if isinstance(config, dict) and ("job" in config or "environments" in config):
        return TRAINING if "job" in config else EVALUATION
    return _MODEL if any(folder.glob("*.safetensors")) else ""


def check_kind(folder: pathlib.Path, expected: str) -> None:
    """Raises RunFolderError if the folder holds something of another kind than `expected`."""
    found = find_kind(folder)
    if found not in ("", expected):
        raise RunFolderError(f"{folder} holds {found}, not {expected}: give another --workdir")
