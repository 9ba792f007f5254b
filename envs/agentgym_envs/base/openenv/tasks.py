"""Tasks of an environment in the form of OpenEnv's task routes, and the task that a reset starts."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.openenv.messages import ResetData
from agentgym_envs.base.protocol import ErrorKind

_SPLIT_TYPES = {manifest.TRAIN: "train", manifest.DEV: "validation", manifest.TEST: "test"}


class Tasks:
    """Tasks of one environment."""

    def __init__(self, name: str, rows: Sequence[Mapping[str, Any]]):
        self._name = name
        self._rows = [{"task_id": f"{name}_{row['data_idx']}", **row} for row in rows]
        self._by_split: dict[str, list[dict[str, Any]]] = {}
        for row in self._rows:
            self._by_split.setdefault(row["split"], []).append(row)

    def splits(self) -> list[dict[str, str]]:
        """Returns the splits with the type that OpenEnv gives them."""
        return [{"name": name, "type": _SPLIT_TYPES[name]} for name in self._by_split]

    def of_split(self, split: str) -> list[dict[str, Any]]:
        """Returns the tasks of a split.

        Raises:
          EnvironmentFault: UNKNOWN_TASK if there is no such split.
        """
        if split not in self._by_split:
            raise _unknown(f"{self._name} has no split {split!r:.100}, only {list(self._by_split)}")
        return self._by_split[split]

    def one(self, split: str, index: int) -> dict[str, Any]:
        """Returns a task of a split.

        Raises:
          EnvironmentFault: UNKNOWN_TASK if there is no such split or task.
        """
        rows = self.of_split(split)
        if not 0 <= index < len(rows):
            raise _unknown(
                f"split {split!r} of {self._name} has tasks 0 .. {len(rows) - 1}, not {index}"
            )
        return rows[index]

    def chosen(self, data: ResetData) -> int:
        """Returns the index of the task that a reset starts; a random one if nothing is given.

        Raises:
          EnvironmentFault: UNKNOWN_TASK if there is no such task.
        """
        if data.data_idx is not None:
            return data.data_idx  # checked by the SessionHost
        if data.task_id is not None:
            prefix, _, number = data.task_id.rpartition("_")
            if prefix != self._name or not (number.isascii() and number.isdecimal()):
                raise _unknown(
                    f"task_id {data.task_id!r:.100} is no task of {self._name}; expected "
                    f"{self._name}_0 .. {self._name}_{len(self._rows) - 1}"
                )
            return int(number[:20])
        if data.index is not None:
            return self.one(data.split or manifest.TRAIN, data.index)["data_idx"]
        rows = self._rows if data.split is None else self.of_split(data.split)
        number_of_task = secrets.randbelow(len(rows)) if data.seed is None else data.seed
        return rows[number_of_task % len(rows)]["data_idx"]


def _unknown(text: str) -> EnvironmentFault:
    return EnvironmentFault(ErrorKind.UNKNOWN_TASK, text)
