"""Task manifests: the tasks of an environment, their splits, and a hash that reveals changes.

A manifest is a list of JSON objects, one per task, with `data_idx`, `split` (`train`, `dev` or
`test`) and facts about the task. Two results are comparable only if the hashes of their manifests
are equal.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Task = Mapping[str, Any]

TRAIN = "train"
DEV = "dev"  # used only by environments whose authors define a dev split
TEST = "test"
SPLITS = (TRAIN, DEV, TEST)


def canonical_json(tasks: Sequence[Task]) -> bytes:
    """Encodes a manifest as the bytes that are hashed: sorted keys, no spaces, ASCII."""
    return json.dumps(
        list(tasks), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode("ascii")


def sha256(tasks: Sequence[Task]) -> str:
    """Returns the hash of a manifest in hexadecimal."""
    return hashlib.sha256(canonical_json(tasks)).hexdigest()


def hash_order(keys: Iterable[str]) -> list[str]:
    """Sorts keys by their sha256, an arbitrary order that is the same on every machine."""
    return sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())


def check(tasks: Sequence[Task]) -> None:
    """Rejects a manifest without tasks, with indices other than 0, 1, 2, ..., or unknown splits.

    Raises:
      ValueError: A task is wrong; the message names the first wrong task.
    """
    if not tasks:
        raise ValueError("the manifest has no tasks, expected at least one")
    for i, task in enumerate(tasks):
        if task.get("data_idx") != i or task.get("split") not in SPLITS:
            raise ValueError(
                f"task {i} of the manifest is {dict(task)}; expected data_idx={i} and split "
                f"{TRAIN}, {DEV} or {TEST}"
            )
