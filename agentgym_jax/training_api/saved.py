"""Saved models on the disk: `tinker://RUN/weights/NAME` and `tinker://RUN/sampler_weights/NAME`.

Weights for training are a checkpoint with the state of the optimiser. Weights for sampling are a
directory of adapters in PEFT's format, which other programs load as well. Both are written under a
temporary name and then renamed, so they are complete or absent.
"""

import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import IO, Any

from agentgym_jax.learner.checkpoint import CheckpointError, Checkpoints
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.models import peft_files
from agentgym_jax.models.lora import Adapters, Params
from agentgym_jax.models.policy import Policy
from agentgym_jax.runs.atomic_files import RunFolderError, disk_errors, try_lock
from agentgym_jax.serving.requests import RequestError

WEIGHTS, SAMPLER_WEIGHTS = "weights", "sampler_weights"
_SCHEME = "tinker://"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_RUN = re.compile(r"[A-Za-z0-9-]{1,100}:train:[0-9]{1,10}")
_BASE = "base.json"  # facts of the base, beside adapters for sampling
_TEMPORARY = ".tmp-"
_REPLACED = ".tmp-old:"


@dataclasses.dataclass(frozen=True)
class SavedPath:
    """Address of a saved model."""

    run: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{_SCHEME}{self.run}/{self.kind}/{self.name}"

    @classmethod
    def parse(cls, text: str, kind: str) -> "SavedPath":
        """Parses an address of one kind; raises RequestError if it is none."""
        parts = text.removeprefix(_SCHEME).split("/")
        expected = f"{_SCHEME}RUN/{kind}/NAME"
        if not text.startswith(_SCHEME) or len(parts) != 3 or not _RUN.fullmatch(parts[0]):
            raise RequestError(
                f"{text[:200]!r} is no saved model; expected {expected}", param="path"
            )
        if parts[1] != kind:
            made_by = "save_state" if kind == WEIGHTS else "save_weights_for_sampler"
            raise RequestError(
                f"{text[:200]!r} has other weights than this call needs; use the path {expected}, "
                f"which {made_by} returns",
                param="path",
            )
        return cls(parts[0], kind, parts[2]).checked()

    def checked(self) -> "SavedPath":
        """Returns this path; raises RequestError if its name could leave the folder."""
        if not _NAME.fullmatch(self.name):
            raise RequestError(
                f"path {self.name[:200]!r} is no name: use up to 200 letters, digits, '.', '-' and "
                "'_', beginning with a letter or digit",
                param="path",
            )
        return self


class SavedModels:
    """Saved models below one folder."""

    def __init__(self, directory: pathlib.Path, base: dict[str, Any], base_name: str):
        """Describes a folder, which `start` creates."""
        self._directory, self._base, self._base_name = directory, base, base_name
        self._lock: IO[str] | None = None

    def start(self) -> None:
        """Locks the folder for this process, and deletes the temporary folders of interrupted saves.

        Raises:
          RunFolderError: Another server uses the folder, or it cannot be written.
        """
        with disk_errors(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = open(self._directory / ".lock", "a", encoding="utf-8")
        if not try_lock(self._lock):
            self._lock.close()
            raise RunFolderError(
                f"{self._directory} is in use by another server: stop it, or choose another --workdir"
            )
        for left in sorted(self._directory.glob(f"*/*/{_TEMPORARY}*")):
            name = left.name.removeprefix(_REPLACED)
            if name != left.name and not left.with_name(name).exists():
                left.rename(left.with_name(name))  # the server ended between two renames
            else:
                shutil.rmtree(left, ignore_errors=True)

    def save_state(
        self, path: SavedPath, adapters: Adapters, state: TrainState, *, overwrite: bool
    ) -> None:
        """Saves weights and optimiser; the errors are those of `_write`."""
        extra = {"base": self._base, "lora": _describe(adapters)}

        def write(folder: pathlib.Path) -> None:
            with Checkpoints(str(folder), max_to_keep=1) as checkpoints:
                checkpoints.save(int(state.step), state, extra)
                checkpoints.wait()

        self._write(path, write, overwrite=overwrite)

    def save_adapters(self, path: SavedPath, adapters: Adapters, params: Params) -> None:
        """Saves weights for sampling; the errors are those of `_write`.

        They are never replaced: a sampling session loads them again after those of another session.
        """

        def write(folder: pathlib.Path) -> None:
            peft_files.save(folder, adapters, params, base=self._base_name, dtype="float32")
            (folder / _BASE).write_text(json.dumps(self._base), encoding="utf-8")

        self._write(path, write, overwrite=False)

    def describe(self, path: SavedPath) -> dict[str, Any]:
        """Returns `rank`, `alpha` and `targets` of saved weights for training.

        Raises:
          RequestError: There are none, they are damaged, or they have another base.
        """
        with self._reading(path) as checkpoints:
            extra = checkpoints.restore_extra(checkpoints.latest_step())
        self._check_base(path, extra["base"])
        return dict(extra["lora"], targets=tuple(extra["lora"]["targets"]))

    def load_state(self, path: SavedPath, abstract: TrainState) -> TrainState:
        """Loads weights and optimiser.

        Raises:
          RequestError: There are none, they are damaged, or they do not fit.
        """
        with self._reading(path) as checkpoints:
            state, _ = checkpoints.restore(checkpoints.latest_step(), abstract)
        return state

    def load_adapters(self, path: SavedPath, policy: Policy) -> peft_files.PeftAdapters:
        """Loads weights for sampling.

        Raises:
          RequestError: There are none, they are damaged, or they have another base.
        """
        folder = self._folder(path)
        self._check_exists(path, folder)
        try:
            if (folder / _BASE).exists():  # earlier versions wrote none
                self._check_base(path, json.loads((folder / _BASE).read_bytes()))
            return peft_files.load(folder, policy)
        except RequestError:
            raise
        except (ValueError, OSError) as error:
            raise RequestError(f"{path}: {error}", param="model_path") from error

    def _check_base(self, path: SavedPath, found: Any) -> None:
        if found != self._base:
            raise RequestError(
                f"{path} belongs to the base {found}, but this server has {self._base}: serve that base",
                param="path",
            )

    @contextlib.contextmanager
    def _reading(self, path: SavedPath) -> Any:
        folder = self._folder(path)
        self._check_exists(path, folder)
        try:
            with Checkpoints(str(folder), max_to_keep=1, read_only=True) as checkpoints:
                yield checkpoints
        except CheckpointError as error:
            raise RequestError(f"{path}: {error}", param="path") from error

    def _folder(self, path: SavedPath) -> pathlib.Path:
        return self._directory / path.run.replace(":", "_") / path.kind / path.name

    def _check_exists(self, path: SavedPath, folder: pathlib.Path) -> None:
        if not folder.is_dir():
            raise RequestError(
                f"there is no {path} in {self._directory}: save it first, or start the server with the "
                "--workdir that has it",
                "not_found",
                "path",
            )

    def _write(
        self, path: SavedPath, write: Callable[[pathlib.Path], None], *, overwrite: bool
    ) -> None:
        """Writes a folder under a temporary name, then renames it.

        Raises:
          RequestError: The name is taken and `overwrite` is False, or the disk is full.
        """
        folder = self._folder(path)
        if folder.exists() and not overwrite:
            advice = ", or set overwrite" if path.kind == WEIGHTS else ""
            raise RequestError(f"{path} exists: choose another name{advice}", "exists", "path")
        temporary = folder.with_name(f"{_TEMPORARY}{folder.name}")
        replaced = folder.with_name(f"{_REPLACED}{folder.name}")
        try:
            with disk_errors(folder):
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
                write(temporary)
                if folder.exists():
                    folder.rename(replaced)
                temporary.rename(folder)
        except (RunFolderError, CheckpointError) as error:
            raise RequestError(f"{path} was not saved: {error}", "not_saved") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(replaced, ignore_errors=True)


def _describe(adapters: Adapters) -> dict[str, Any]:
    return {"rank": adapters.rank, "alpha": adapters.alpha, "targets": list(adapters.targets)}
