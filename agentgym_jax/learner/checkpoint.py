"""Checkpoints of the complete state of a run.

A checkpoint is saved in the background and is either complete or absent.

A checkpoint is a folder named by its step with three items. `params` holds the policy. `optimizer`
holds the optimiser state, the step counter and the whole critic, if there is one. `record` is JSON:
the caller's `extra` and a description of the arrays. A run that samples one step ahead has a fourth
item, `behaviour`: the weights that sample the next step. Orbax writes the folder under a temporary
name and renames it when all files are on the disk. Just before the renaming, the digest of every
file is added, because the array format notices a lost file but not a flipped bit.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
import tensorstore
from absl import logging
from orbax.checkpoint import checkpoint_managers

from agentgym_jax.learner.train_state import TrainState, describe_arrays
from agentgym_jax.run_folder import disk_advice

_DIGESTS = "digests.json"
_TEMPORARY = ".orbax-checkpoint-tmp"
_BEHAVIOUR = "behaviour"
# Pattern of an operating-system error in the messages of the array writer.
_OS_ERROR = re.compile(r"\[os_error_code='(\d+)'\]")
# Files written after the digests or changed by the renaming; nothing is restored from them.
_UNSEALED = ("_CHECKPOINT_METADATA", "commit_success.txt", _DIGESTS)


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used; the message states the remedy."""


@contextlib.contextmanager
def _errors_only() -> Iterator[None]:
    """Silences Orbax's warning about a checkpoint manager that only reads."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


class Checkpoints:
    """The checkpoints of one run.

    Args:
      directory: Folder `checkpoints/` of the run.
      max_to_keep: Number of newest checkpoints to keep; older ones are deleted.
      keep_every: Checkpoints of steps that are multiples of this number are never deleted; None for
        no exceptions.
      read_only: True for readers (export, evaluation) of a folder to which a trainer may be
        writing. No file is created or deleted.
    """

    def __init__(
        self,
        directory: str | pathlib.Path,
        *,
        max_to_keep: int,
        keep_every: int | None = None,
        read_only: bool = False,
    ):
        if max_to_keep < 1:
            raise ValueError(f"Checkpoints: max_to_keep is {max_to_keep}, expected at least 1")
        self._directory = pathlib.Path(directory).absolute()
        self._newest_started: int | None = None
        if read_only and not self._directory.is_dir():
            raise CheckpointError(f"no checkpoints: {self._directory} does not exist")
        if not read_only and self._directory.is_dir():
            _set_aside_incomplete(self._directory)
        _leave_counters_alone()
        policies = [checkpoint_managers.LatestN(max_to_keep)]
        if keep_every is not None:
            policies.append(checkpoint_managers.EveryNSteps(keep_every))
        with _errors_only() if read_only else contextlib.nullcontext():
            self._manager = ocp.CheckpointManager(
                self._directory,
                options=ocp.CheckpointManagerOptions(
                    preservation_policy=checkpoint_managers.AnyPreservationPolicy(policies),
                    enable_async_checkpointing=True,
                    async_options=ocp.AsyncOptions(
                        post_finalization_callback=functools.partial(_seal, self._directory)
                    ),
                    cleanup_tmp_directories=not read_only,
                    create=not read_only,
                    read_only=read_only,
                ),
            )

    def save(
        self, step: int, state: TrainState, extra: Mapping[str, Any], behaviour: Any = None
    ) -> None:
        """Copies the state off the devices, then writes it in the background.

        The caller may donate the state as soon as this call returns. An error of the writing thread
        is raised by the next `save`, `wait` or `close`. A save first waits for the previous save.
        Saving the most recently saved step again does nothing.

        Args:
          step: Step that names the checkpoint, larger than the step of every complete checkpoint.
          state: State to save, with all its arrays.
          extra: JSON object with all state of the host. Tuples are restored as lists.
          behaviour: Weights that sample the next step, if they differ from the weights in the
            state.
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
        with self._write_errors():
            is_started = self._manager.save(
                step,
                args=ocp.args.Composite(
                    params=ocp.args.StandardSave(state.params),
                    optimizer=ocp.args.StandardSave(_optimizer_item(state)),
                    record=ocp.args.JsonSave(record),
                    **{name: ocp.args.StandardSave(tree) for name, tree in items.items()},
                ),
            )
        if not is_started:
            raise CheckpointError(f"checkpoint {step} in {self._directory} was not started")

    def steps(self) -> list[int]:
        """Returns the steps of all complete checkpoints, oldest first."""
        # The folder is read every time, because another process may be the writer.
        names = (p.name for p in self._directory.iterdir() if (p / _DIGESTS).is_file())
        return sorted(int(name) for name in names if name.isdecimal())

    def latest_step(self) -> int | None:
        """Returns the step of the newest complete checkpoint; None if there is none."""
        return max(self.steps(), default=None)

    def restore(self, step: int, abstract_state: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """Restores the state and the `extra` of a step returned by `latest_step()`.

        `abstract_state` is the result of `train_state.abstract_state`; its shardings determine the
        placement of the arrays, on any mesh.

        Raises:
          CheckpointError: The checkpoint is damaged, incomplete or of a different model.
        """
        self._verify(step)
        record = self._record(step)
        items = record["arrays"].items()
        arrays = {k: v for k, v in items if not k.startswith(f"{_BEHAVIOUR}/")}
        self._check_arrays(step, arrays, describe_arrays(abstract_state))
        found = self._manager.restore(
            step,
            args=ocp.args.Composite(
                params=ocp.args.StandardRestore(abstract_state.params),
                optimizer=ocp.args.StandardRestore(_optimizer_item(abstract_state)),
            ),
        )
        critic = found.optimizer.pop("critic", None)
        state = TrainState(
            **found.optimizer,
            params=found.params,
            critic=None if critic is None else TrainState(**critic),
        )
        return state, record["extra"]

    def restore_params(self, step: int, abstract_params: Any) -> Any:
        """Restores the parameters of a step; the optimiser state is not read.

        Arrays of `abstract_params` without a sharding are placed on the first device.
        """
        self._verify(step)
        return self._restore_item(step, "params", abstract_params)

    def restore_behaviour(self, step: int, abstract_params: Any) -> Any:
        """Restores the weights that sample the next step, which are older than the weights of the
        saved state.

        The caller must first have called `restore` for this step without an error.
        """
        return self._restore_item(step, _BEHAVIOUR, abstract_params)

    def _restore_item(self, step: int, name: str, abstract: Any) -> Any:
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        placed = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding or here),
            abstract,
        )
        items = self._record(step)["arrays"].items()
        saved = {k: v for k, v in items if k.startswith(f"{name}/")}
        self._check_arrays(step, saved, describe_arrays({name: placed}))
        args = ocp.args.Composite(**{name: ocp.args.StandardRestore(placed)})
        return self._manager.restore(step, args=args)[name]

    def restore_extra(self, step: int) -> dict[str, Any]:
        """Restores the `extra` of a step."""
        self._verify(step)
        return self._record(step)["extra"]

    def wait(self) -> None:
        """Waits until every saved checkpoint is complete on the disk."""
        with self._write_errors():
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits for the last save, then ends the background threads."""
        with self._write_errors():
            self._manager.close()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _write_errors(self) -> Iterator[None]:
        """Converts an error of the operating system to a CheckpointError that explains the
        consequences.

        Raises:
          CheckpointError: The checkpoint could not be written to the disk.
        """
        try:
            yield
        except (OSError, ValueError) as error:
            told = _OS_ERROR.search(str(error))
            number = int(told[1]) if told else getattr(error, "errno", None)
            if number is None:
                raise
            newest = self.latest_step()
            kept = f"Step {newest} is complete" if newest is not None else "There is none before it"
            raise CheckpointError(
                f"checkpoint {self._newest_started} could not be written to {self._directory}: "
                f"{os.strerror(number)}. {kept}. {disk_advice(number)}"
            ) from error

    def _verify(self, step: int) -> None:
        folder = self._directory / str(step)
        steps = self.steps()
        if step not in steps:
            raise CheckpointError(
                f"no complete checkpoint of step {step} in {self._directory}; it has {steps}"
            )
        faults = _faults(folder)
        if not faults:
            return
        earlier = [s for s in steps if s < step]
        then = f"to resume from step {earlier[-1]}" if earlier else "and start the run again"
        raise CheckpointError(
            f"checkpoint {step} is damaged: {'; '.join(faults[:3])}"
            f"{f' and {len(faults) - 3} more' if len(faults) > 3 else ''}. "
            f"Delete the folder {folder} {then}."
        )

    def _record(self, step: int) -> dict[str, Any]:
        """Reads the JSON item: `arrays` describes the saved arrays, and `extra` is the caller's
        object.
        """
        return self._manager.restore(step, args=ocp.args.Composite(record=ocp.args.JsonRestore()))[
            "record"
        ]

    def _check_arrays(self, step: int, saved: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Raises an error before any array is read if types or shapes differ, because the array
        format would pad, cut or cast such arrays.
        """
        names = [k for k in saved.keys() | wanted.keys() if saved.get(k) != wanted.get(k)]
        names.sort(key=lambda k: (not k.startswith("params"), k))
        if not names:
            return
        lines = [f"{k}: saved {saved.get(k)}, expected {wanted.get(k)}" for k in names[:3]]
        raise CheckpointError(
            f"checkpoint {step} in {self._directory} is of another model or optimiser, "
            f"{len(names)} arrays differ ({'; '.join(lines)}). Use the config it was made with."
        )


def _leave_counters_alone() -> None:
    """Stops Orbax from querying TensorStore twice per item for the number of written bytes.

    Orbax needs that number only to log the rate.

    TensorStore (0.1.74 to 0.1.86) never frees JSON that it passes to Python: 14 KiB of counters per
    query. The specification of each array (some 300 bytes per save) is needed, so that small leak
    remains.
    """
    tensorstore.experimental_collect_matching_metrics = lambda *args, **kwargs: []


def _optimizer_item(state: TrainState) -> dict[str, Any]:
    """Returns all of the state except the policy's parameters, which are a separate item."""
    item = {"step": state.step, "opt_state": state.opt_state}
    if state.critic is not None:
        item["critic"] = _optimizer_item(state.critic) | {"params": state.critic.params}
    return item


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digests(folder: pathlib.Path) -> dict[str, str]:
    """Returns the sha256 of every file that is restored, by the file's path inside the folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in _UNSEALED)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:  # hashing releases the GIL
        values = pool.map(_digest, files)
        return {str(f.relative_to(folder)): value for f, value in zip(files, values, strict=True)}


def _seal(directory: pathlib.Path) -> None:
    """Adds digests to the checkpoint that is about to be renamed; runs in the writing thread."""
    if jax.process_index() != 0:
        return
    for folder in directory.glob(f"*{_TEMPORARY}*"):
        sealed = folder / _DIGESTS
        if folder.is_dir() and not sealed.exists():
            # The digests are written in one rename, so that a full disk cannot leave a partial
            # file.
            half = folder / f"{_DIGESTS}.half"
            half.write_text(json.dumps(_digests(folder), indent=1))
            half.replace(sealed)
            logging.vlog(1, "sealed %s", folder)


def _set_aside_incomplete(directory: pathlib.Path) -> None:
    """Renames step folders that lack digests, so that a later save of the same step does not
    collide with them.
    """
    for folder in directory.iterdir():
        if folder.name.isdecimal() and not (folder / _DIGESTS).is_file():
            aside = directory / f"incomplete-{folder.name}"
            logging.warning("%s is not a complete checkpoint: renamed to %s", folder, aside.name)
            if aside.exists():
                shutil.rmtree(aside)
            folder.rename(aside)


def _faults(folder: pathlib.Path) -> list[str]:
    """Returns the differences between the files and their digests; empty if there are none."""
    try:
        expected = json.loads((folder / _DIGESTS).read_text())
    except (OSError, ValueError) as error:
        return [f"{_DIGESTS} cannot be read ({error})"]
    found = _digests(folder)
    lost = [f"{name} is missing" for name in expected if name not in found]
    changed = [
        f"{name} has changed since it was written"
        for name, value in expected.items()
        if name in found and found[name] != value
    ]
    return lost + changed
