"""Task manifests: which tasks an environment has, their split, and a hash that notices drift.

A manifest is a list of JSON objects, one a task, each with `data_idx`, `split` (`train`,
`dev` or `test`) and facts of the environment. Two results are comparable only if they were measured
under the same hash.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Task = Mapping[str, Any]

TRAIN = "train"
DEV = "dev"  # only environments whose authors set such tasks aside have it
TEST = "test"


def canonical_json(tasks: Sequence[Task]) -> bytes:
    """The one byte string that a manifest is hashed as: sorted keys, no spaces, ASCII."""
    return json.dumps(
        list(tasks), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode("ascii")


def sha256(tasks: Sequence[Task]) -> str:
    """Hash of a manifest, in hexadecimal."""
    return hashlib.sha256(canonical_json(tasks)).hexdigest()


def hash_order(keys: Iterable[str]) -> list[str]:
    """The keys in the order of their sha256: an arbitrary order that is the same everywhere."""
    return sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())


def check(tasks: Sequence[Task]) -> None:
    """Refuses a manifest whose indices are not 0, 1, 2, ... or whose splits are unknown.

    Raises:
      ValueError: with the first task that is wrong.
    """
    for i, task in enumerate(tasks):
        if task["data_idx"] != i or task["split"] not in (TRAIN, DEV, TEST):
            raise ValueError(
                f"task {i} of the manifest is {dict(task)}; expected data_idx={i} and split "
                f"{TRAIN}, {DEV} or {TEST}"
            )
