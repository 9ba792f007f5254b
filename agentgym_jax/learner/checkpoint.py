"""Checkpoints of the complete state of a run, saved in the background, either complete or absent.

A checkpoint is a folder named by its step. Its items are `params` (policy), `optimizer` (optimiser
state, step counter and critic) and `record` (JSON: the caller's `extra` and a description of all
arrays). Stale rollout weights are the item `behaviour`. Orbax writes the folder under a temporary
name and then renames it. Before the renaming, `_seal` adds the digest of every file, because the
array format detects a lost file but not a flipped bit.

An object store cannot rename folders. There, Orbax writes to the final name and adds the file
`commit_success.txt` last, so a checkpoint is complete if it has this file and the digests.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import orbax.checkpoint as ocp
import tensorstore
from absl import logging
from orbax.checkpoint import checkpoint_managers

from agentgym_jax.learner.train_state import TrainState, describe_arrays, list_differences
from agentgym_jax.mesh import processes
from agentgym_jax.models.policy import Params
from agentgym_jax.runs import bucket
from agentgym_jax.runs.atomic_files import disk_advice

_DIGESTS = "digests.json"
_TEMPORARY = ".orbax-checkpoint-tmp"
_BEHAVIOUR = "behaviour"
# Pattern of an operating-system error in messages of TensorStore, which writes the arrays.
_OS_ERROR = re.compile(r"\[os_error_code='(\d+)'\]")
_COMMITTED = "commit_success.txt"
_DELETION_S = 1.0  # time in which another process deletes the files of a checkpoint, in seconds
# Files written after the digests or changed by the renaming; nothing is restored from them.
_UNSEALED = ("_CHECKPOINT_METADATA", _COMMITTED, _DIGESTS)


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used; the message states the remedy."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
      directory: Folder `checkpoints/` of the run, local or in a bucket.
      max_to_keep: Number of newest checkpoints to keep; older ones are deleted.
      keep_every: Checkpoints of steps that are multiples of this number are never deleted; None for
        no exceptions.
      read_only: True for readers of a folder to which a trainer may be writing. No file is created
        or deleted.
    """

    def __init__(
        self,
        directory: str | bucket.Folder,
        *,
        max_to_keep: int,
        keep_every: int | None = None,
        read_only: bool = False,
    ):
        self._directory = bucket.to_folder(directory)
        self._newest_started: int | None = None
        self._manager: ocp.CheckpointManager | None = None
        if read_only:
            if not self._directory.is_dir():
                raise CheckpointError(f"no checkpoints: {self._directory} does not exist")
            return
        with processes.writer_first():
            if processes.is_writer() and self._directory.is_dir():
                _set_aside_incomplete(self._directory)
        # Taken from process 0, because all processes must restore and save the same steps.
        found = self.latest_step() if self._directory.is_dir() else None
        self._newest_found: int | None = processes.broadcast(found, "checkpoint")
        _leave_counters_alone()
        policies = [checkpoint_managers.LatestN(max_to_keep)]
        if keep_every is not None:
            policies.append(checkpoint_managers.EveryNSteps(keep_every))
        self._manager = ocp.CheckpointManager(
            self._directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=checkpoint_managers.AnyPreservationPolicy(policies),
                enable_async_checkpointing=True,
                async_options=ocp.AsyncOptions(
                    post_finalization_callback=functools.partial(_seal, self._directory)
                ),
                cleanup_tmp_directories=True,
            ),
        )

    def save(
        self,
        step: int,
        state: TrainState,
        extra: Mapping[str, Any],
        behaviour: Mapping[str, Params] | None = None,
    ) -> None:
        """Copies the state off the devices, then writes it in the background.

        The caller may donate the state as soon as this call returns. An error of the writing thread
        is raised by the next `save`, by `wait` or at the end of the context. `step` must be larger
        than the steps of all complete checkpoints. A repeated save of the same step does nothing.

        `extra` is a JSON object with all state of the host; tuples are restored as lists.
        `behaviour` has the weights that sampled the present episodes; None if these are
        `state.params`.
        """
        items = {} if behaviour is None else {_BEHAVIOUR: behaviour}
        record = {"arrays": describe_arrays(state) | describe_arrays(items), "extra": dict(extra)}
        # raises an error here rather than in the writing thread
        json.dumps(record, allow_nan=False)
        if step == self._newest_started:
            return
        self.wait()
        newest = self.latest_step()
        if newest is not None and step <= newest:
            raise CheckpointError(
                f"checkpoint {step} would not be the newest: {self._directory} has step {newest}. "
                "Resume from it, or use a new workdir."
            )
        self._newest_started = step
        items |= {"params": state.params, "optimizer": _optimizer_item(state)}
        arrays = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        with self._write_errors():
            is_started = self._writer.save(
                step, args=ocp.args.Composite(record=ocp.args.JsonSave(record), **arrays)
            )
        if not is_started:
            raise CheckpointError(f"checkpoint {step} in {self._directory} was not started")

    @property
    def _writer(self) -> ocp.CheckpointManager:
        assert self._manager is not None, "the folder was opened for reading"
        return self._manager

    @property
    def newest(self) -> int | None:
        """Step of the newest checkpoint found at the start or saved since then; None if none."""
        return self._newest_found if self._newest_started is None else self._newest_started

    def steps(self) -> list[int]:
        """Returns the steps of all complete checkpoints, oldest first."""
        # The folder is read every time, because another process may be the writer.
        folders = _step_folders(self._directory)
        return sorted(int(folder.name) for folder in folders if _is_complete(folder))

    def latest_step(self) -> int | None:
        """Returns the step of the newest complete checkpoint; None if there is none."""
        return max(self.steps(), default=None)

    def restore(self, step: int, abstract_state: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """Restores the state and the `extra` of a step.

        The shardings of `abstract_state` determine the placement of the arrays, on any mesh.

        Raises:
          CheckpointError: The checkpoint is damaged, incomplete or of a different model.
        """
        with self._reading(step):
            record = self._record(step)
            saved = {
                k: v for k, v in record["arrays"].items() if not k.startswith(f"{_BEHAVIOUR}/")
            }
            self._check_arrays(step, saved, describe_arrays(abstract_state))
            params = self._read(step, "params", abstract_state.params)
            others = self._read(step, "optimizer", _optimizer_item(abstract_state))
        critic = others.pop("critic", None)
        critic = None if critic is None else TrainState(**critic)
        return TrainState(**others, params=params, critic=critic), record["extra"]

    def restore_params(self, step: int, abstract_params: Params) -> Params:
        """Restores only the parameters of a step.

        Arrays of `abstract_params` without a sharding are placed on the first device.
        """
        with self._reading(step):
            return self._restore_weights(step, "params", abstract_params)

    def restore_behaviour(self, step: int, abstract_params: Params) -> Params:
        """Restores the stale rollout weights of a step that `restore` has verified."""
        return self._restore_weights(step, _BEHAVIOUR, abstract_params)

    def restore_extra(self, step: int) -> dict[str, Any]:
        """Restores the `extra` of a step."""
        with self._reading(step):
            return self._record(step)["extra"]

    def wait(self) -> None:
        """Waits until every saved checkpoint is complete on the disk."""
        with self._write_errors():
            self._writer.wait_until_finished()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._manager is not None:
            with self._write_errors():
                self._manager.close()

    @contextlib.contextmanager
    def _write_errors(self) -> Iterator[None]:
        """Converts an error of the operating system to a CheckpointError with a remedy."""
        try:
            yield
        except (OSError, ValueError) as error:
            match = _OS_ERROR.search(str(error))
            number = int(match[1]) if match else getattr(error, "errno", None)
            if number is None:
                raise
            newest = self.latest_step()
            kept = f"Step {newest} is complete" if newest is not None else "There is none before it"
            raise CheckpointError(
                f"checkpoint {self._newest_started} could not be written to {self._directory}: "
                f"{os.strerror(number)}. {kept}. {disk_advice(number)}"
            ) from error

    @contextlib.contextmanager
    def _reading(self, step: int) -> Iterator[None]:
        """Verifies a checkpoint; names the cause if its run deletes it while it is read."""
        try:
            self._verify(step)
            yield
        except (CheckpointError, OSError, ValueError) as error:
            if self._manager is None and step in self.steps():
                time.sleep(_DELETION_S)
            steps = self.steps()
            if step in steps:
                raise
            raise CheckpointError(
                f"no complete checkpoint of step {step} in {self._directory} (a run deletes its older "
                f"ones); it has {steps}"
            ) from error

    def _verify(self, step: int) -> None:
        folder = self._directory / str(step)
        steps = self.steps()
        if step not in steps:
            raise CheckpointError(f"there is no checkpoint {step}")
        faults = _faults(folder)
        if not faults:
            return
        earlier = [s for s in steps if s < step]
        remedy = f"to resume from step {earlier[-1]}" if earlier else "and start the run again"
        raise CheckpointError(
            f"checkpoint {step} is damaged: {'; '.join(faults[:3])}"
            f"{f' and {len(faults) - 3} more' if len(faults) > 3 else ''}. "
            f"Delete the folder {folder} {remedy}."
        )

    def _record(self, step: int) -> dict[str, Any]:
        return ocp.JsonCheckpointHandler().restore(self._directory / str(step) / "record")

    def _read(self, step: int, item: str, abstract: dict[str, Any]) -> dict[str, Any]:
        folder, args = self._directory / str(step) / item, ocp.args.StandardRestore(abstract)
        return ocp.StandardCheckpointHandler().restore(folder, args=args)

    def _restore_weights(self, step: int, item: str, abstract: Params) -> Params:
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        placed = jax.tree.map(lambda x: x.update(sharding=x.sharding or here), abstract)
        arrays = self._record(step)["arrays"].items()
        saved = {k: v for k, v in arrays if k.startswith(f"{item}/")}
        self._check_arrays(step, saved, describe_arrays({item: placed}))
        return self._read(step, item, placed)

    def _check_arrays(self, step: int, saved: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        # The array format would pad, cut or cast arrays of another shape or type.
        lines = list_differences(saved, wanted, "saved")
        if lines:
            raise CheckpointError(
                f"checkpoint {step} in {self._directory} is of another model or optimiser, "
                f"{len(lines)} arrays differ ({'; '.join(lines[:3])}). "
                "Use the config it was made with."
            )


def _leave_counters_alone() -> None:
    """Stops Orbax from querying TensorStore for numbers of written bytes, which are only logged.

    TensorStore (0.1.74 to 0.1.86) never frees the JSON that a query returns to Python: 14 KiB each.
    Orbax makes two queries per item.
    """
    tensorstore.experimental_collect_matching_metrics = lambda *args, **kwargs: []


def _optimizer_item(state: TrainState) -> dict[str, Any]:
    """Returns all of the state except the policy's parameters, which are a separate item."""
    item = {"step": state.step, "opt_state": state.opt_state}
    if state.critic is not None:
        item["critic"] = _optimizer_item(state.critic) | {"params": state.critic.params}
    return item


def _digest(path: bucket.Folder) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digests(folder: bucket.Folder, files: Sequence[bucket.Folder]) -> dict[str, str]:
    """Returns the SHA-256 of files, by the file's path inside the folder."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:  # hashing releases the GIL
        values = pool.map(_digest, files)
        return {str(f.relative_to(folder)): value for f, value in zip(files, values, strict=True)}


def _step_folders(directory: bucket.Folder) -> list[bucket.Folder]:
    """Returns the folders with the name of a step; in a bucket, an empty folder does not exist."""
    if bucket.is_object_store(directory) and not directory.is_dir():
        return []
    return [folder for folder in directory.iterdir() if folder.name.isdecimal()]


def _is_complete(folder: bucket.Folder) -> bool:
    is_committed = not bucket.is_object_store(folder) or (folder / _COMMITTED).is_file()
    return is_committed and (folder / _DIGESTS).is_file()


def _seal(directory: bucket.Folder) -> None:
    """Adds digests to the checkpoint that is about to be complete; runs in the writing thread."""
    if bucket.is_object_store(directory):
        steps = _step_folders(directory)
        unfinished = [folder for folder in steps if not (folder / _COMMITTED).is_file()]
    else:
        unfinished = list(directory.glob(f"*{_TEMPORARY}*"))
    for folder in unfinished:
        sealed = folder / _DIGESTS
        if folder.is_dir() and not sealed.exists():
            files = sorted(p for p in bucket.walk(folder) if p.name not in _UNSEALED)
            text = json.dumps(_digests(folder, files), indent=1)
            if bucket.is_object_store(sealed):
                sealed.write_text(text)
                continue
            # The file is renamed when it is complete, so that a full disk leaves no partial file.
            half = folder / f"{_DIGESTS}.half"
            half.write_text(text)
            half.replace(sealed)


def _set_aside_incomplete(directory: bucket.Folder) -> None:
    """Renames step folders without digests, so that their steps can be saved again.

    In an object store, a folder that was not committed is the remainder of an interrupted save. It
    is removed.
    """
    for folder in _step_folders(directory):
        if _is_complete(folder):
            continue
        if bucket.is_object_store(folder) and not (folder / _COMMITTED).is_file():
            logging.warning("%s is not a complete checkpoint: removed", folder)
            bucket.remove(folder)
            continue
        aside = directory / f"incomplete-{folder.name}"
        logging.warning("%s is not a complete checkpoint: renamed to %s", folder, aside.name)
        bucket.remove(aside)
        folder.rename(aside)


def _faults(folder: bucket.Folder) -> list[str]:
    """Describes the files that are missing or do not match their digests.

    Each process of the run reads a part of the files.
    """
    try:
        expected = json.loads((folder / _DIGESTS).read_text())
        if not isinstance(expected, dict) or not expected:
            raise ValueError("it names no file")
    except (OSError, ValueError) as error:
        return [f"{_DIGESTS} cannot be read ({error})"]
    names = sorted(expected)[processes.index() :: processes.count()]
    files = [folder / name for name in names]
    found = _digests(folder, [file for file in files if file.is_file()])
    own = [
        f"{name} {'has changed since it was written' if name in found else 'is missing'}"
        for name in names
        if found.get(name) != expected[name]
    ]
    return [fault for faults in processes.gather(own, "checkpoint") for fault in faults]
