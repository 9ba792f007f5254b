"""Checkpoints: everything a run needs to go on, saved in the background, complete or absent.

A checkpoint is a folder named by its step with three items: `params`, `optimizer` (optimiser state,
step counter and the whole critic, if there is one) and `record` (JSON: the caller's `extra`, and what
the arrays are). A run that collects ahead has a fourth, `behaviour`: the weights that play the next
step. Orbax writes the folder under a temporary name and renames it when all is on the disk. Just
before that, the digest of every file is added, because the array format notices a lost file but not
a flipped bit.
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

from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.run_folder import disk_advice

_DIGESTS = "digests.json"
_TEMPORARY = ".orbax-checkpoint-tmp"
_BEHAVIOUR = "behaviour"
# How the writer of arrays tells the operating system's error.
_OS_ERROR = re.compile(r"\[os_error_code='(\d+)'\]")
# Written after the seal or rewritten by the rename; nothing is restored from them.
_UNSEALED = ("_CHECKPOINT_METADATA", "commit_success.txt", _DIGESTS)


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used; the message says what to do."""


@contextlib.contextmanager
def _errors_only() -> Iterator[None]:
    """Keeps Orbax from warning that a reader reads only."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


class Checkpoints:
    """The checkpoints of one run.

    Args:
      directory: the run's `checkpoints/`.
      max_to_keep: the newest so many stay; older ones are deleted.
      keep_every: steps that are a multiple of this stay for ever; None for none.
      read_only: for readers (export, evaluation) of a folder that a trainer may be writing to:
        nothing is created, cleaned up or deleted.
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
        """Copies the state off the devices, then writes in the background.

        The state may be donated as soon as this returns. An error of the writing thread is
        raised by the next `save`, `wait` or `close`; a save first waits for the one before it.
        Saving the step that was saved last again does nothing: it is on its way.

        Args:
          step: name of the checkpoint, larger than that of every complete one.
          state: all of it is saved.
          extra: JSON object of everything that lives on the host. Tuples come back as lists.
          behaviour: weights that play the next step, if they are not those of the state.
        """
        items = {} if behaviour is None else {_BEHAVIOUR: behaviour}
        record = {"arrays": _described(state) | _described(items), "extra": dict(extra)}
        json.dumps(record, allow_nan=False)  # fails here rather than in the writing thread
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
        """Steps of all complete checkpoints, oldest first."""
        # Read from the disk every time: another process may be the writer.
        names = (p.name for p in self._directory.iterdir() if (p / _DIGESTS).is_file())
        return sorted(int(name) for name in names if name.isdecimal())

    def latest_step(self) -> int | None:
        """Step of the newest complete checkpoint; None if there is none."""
        return max(self.steps(), default=None)

    def restore(self, step: int, abstract_state: TrainState) -> tuple[TrainState, dict[str, Any]]:
        """State and `extra` of a step.

        Args:
          step: from `latest_step()`.
          abstract_state: from `train_state.abstract_state`; its shardings say where the arrays
            go, on any mesh.

        Raises:
          CheckpointError: the checkpoint is damaged, incomplete or of another model.
        """
        self._verify(step)
        record = self._record(step)
        arrays = {k: v for k, v in record["arrays"].items() if not _is_of(_BEHAVIOUR, k)}
        self._check_arrays(step, arrays, _described(abstract_state))
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
        """Only the parameters of a step; the optimiser state is not read.

        Args:
          step: from `latest_step()`.
          abstract_params: tree of ShapeDtypeStruct; without a sharding an array goes to the
            first device.
        """
        self._verify(step)
        return self._restore_item(step, "params", abstract_params)

    def restore_behaviour(self, step: int, abstract_params: Any) -> Any:
        """The weights that play the step after this one, saved with a state that is newer.

        Args:
          step: of a checkpoint that `restore` has read, and so found complete.
          abstract_params: tree of ShapeDtypeStruct, as for `restore_params`.
        """
        return self._restore_item(step, _BEHAVIOUR, abstract_params)

    def _restore_item(self, step: int, name: str, abstract: Any) -> Any:
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        placed = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding or here),
            abstract,
        )
        saved = self._record(step)["arrays"]
        saved = {k: v for k, v in saved.items() if _is_of(name, k)}
        self._check_arrays(step, saved, _described({name: placed}))
        args = ocp.args.Composite(**{name: ocp.args.StandardRestore(placed)})
        return self._manager.restore(step, args=args)[name]

    def restore_extra(self, step: int) -> dict[str, Any]:
        """Only the JSON object of a step."""
        self._verify(step)
        return self._record(step)["extra"]

    def wait(self) -> None:
        """Returns when everything saved so far is complete on the disk."""
        with self._write_errors():
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, then ends the background threads."""
        with self._write_errors():
            self._manager.close()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _write_errors(self) -> Iterator[None]:
        """Says what became of a checkpoint that the disk did not take.

        Raises:
          CheckpointError: in place of the operating system's error, in whatever form it comes.
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
        """The JSON item: `arrays` describes what was saved, `extra` is the caller's."""
        return self._manager.restore(step, args=ocp.args.Composite(record=ocp.args.JsonRestore()))[
            "record"
        ]

    def _check_arrays(self, step: int, saved: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Refuses before anything is read: the array format would pad, cut or cast."""
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
    """Keeps Orbax from asking TensorStore twice an item how much was written, only to log the rate.

    What TensorStore hands to Python as JSON is never freed (0.1.74 to 0.1.86): 14 KiB of counters
    each time. The specification of every array, some 300 bytes a save, is needed and stays lost.
    """
    tensorstore.experimental_collect_matching_metrics = lambda *args, **kwargs: []


def _optimizer_item(state: TrainState) -> dict[str, Any]:
    """Everything but the parameters of the policy, which others read without the rest."""
    item = {"step": state.step, "opt_state": state.opt_state}
    critic = state.critic
    if critic is not None:
        item["critic"] = {
            "step": critic.step,
            "params": critic.params,
            "opt_state": critic.opt_state,
        }
    return item


def _is_of(item: str, name: str) -> bool:
    """Whether an array belongs to an item, by its path."""
    return name.startswith(f"{item}/")


def _described(tree: Any) -> dict[str, str]:
    """Type and shape of every array by its path, such as `float32[2,16]`."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): (
            f"{x.dtype}[{','.join(map(str, x.shape))}]"
        )
        for path, x in flat
    }


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digests(folder: pathlib.Path) -> dict[str, str]:
    """sha256 of every file that matters, by its path inside the folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in _UNSEALED)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:  # hashing releases the GIL
        values = pool.map(_digest, files)
        return {str(f.relative_to(folder)): value for f, value in zip(files, values, strict=True)}


def _seal(directory: pathlib.Path) -> None:
    """Adds digests to the checkpoint that is about to be renamed. Runs in the writing thread."""
    if jax.process_index() != 0:
        return
    for folder in directory.glob(f"*{_TEMPORARY}*"):
        sealed = folder / _DIGESTS
        if folder.is_dir() and not sealed.exists():
            # In one rename: a full disk must not leave a seal that looks like one.
            half = folder / f"{_DIGESTS}.half"
            half.write_text(json.dumps(_digests(folder), indent=1))
            half.replace(sealed)
            logging.vlog(1, "sealed %s", folder)


def _set_aside_incomplete(directory: pathlib.Path) -> None:
    """Renames step folders without digests: a later save must not stumble over them."""
    for folder in directory.iterdir():
        if folder.name.isdecimal() and not (folder / _DIGESTS).is_file():
            aside = directory / f"incomplete-{folder.name}"
            logging.warning("%s is not a complete checkpoint: renamed to %s", folder, aside.name)
            if aside.exists():
                shutil.rmtree(aside)
            folder.rename(aside)


def _faults(folder: pathlib.Path) -> list[str]:
    """What differs from the digests; empty if nothing does."""
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
