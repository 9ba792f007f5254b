"""Config key `loggers`: `none`, or names of loggers joined by `+`, such as `tensorboard+wandb`."""

import contextlib
import importlib
import importlib.util
import os
import pathlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.base import extras
from agentgym_jax.run_folder import RunFolder, write_atomic
from agentgym_jax.telemetry import redact
from agentgym_jax.telemetry.loggers.about import About
from agentgym_jax.telemetry.loggers.channel import Channel

# Package, module and class of each logger. The extra in setup.py has the name of the logger.
LOGGERS = {
    "tensorboard": ("tensorboardX", "agentgym_jax.telemetry.loggers.tensorboard", "TensorBoard"),
    "wandb": ("wandb", "agentgym_jax.telemetry.loggers.weights_and_biases", "WeightsAndBiases"),
    "mlflow": ("mlflow", "agentgym_jax.telemetry.loggers.mlflow", "MLflow"),
    "trackio": ("trackio", "agentgym_jax.telemetry.loggers.trackio", "Trackio"),
}
# Environment variables that name the folder for a package's files; the package reads them on
# import.
_FOLDERS = {"trackio": "TRACKIO_DIR"}
_CLOSE_S = 20.0  # time limit in seconds for closing all loggers together


def parse(word: str) -> tuple[str, ...]:
    """Returns the names in `word`, after checking that their packages are installed; imports no
    package.

    Raises:
      ValueError: A name is unknown or repeated, or its package is missing.
    """
    if word == "none":
        return ()
    names = tuple(word.split("+"))
    for name in names:
        if name not in LOGGERS:
            raise ValueError(
                f"loggers={word!r}: {name!r} is none of {', '.join(LOGGERS)}; write 'none', one of "
                "them, or several joined by '+'"
            )
        package = LOGGERS[name][0]
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"loggers={word!r} needs the package {package}, which is not installed: "
                f"{extras.install(name)}"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"loggers={word!r} names a logger twice")
    return names


class Loggers:
    """All loggers of a run; a call of `log` takes microseconds."""

    def __init__(self, channels: Sequence[Channel]):
        self._channels = tuple(channels)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Passes a step to all loggers; its line is already in metrics.jsonl."""
        for channel in self._channels:
            channel.log(step, values)

    def close(self) -> None:
        """Waits until all loggers have finished, at most `_CLOSE_S` seconds."""
        for channel in self._channels:
            channel.close(_CLOSE_S / len(self._channels))


@contextlib.contextmanager
def open_loggers(
    names: Sequence[str], folder: RunFolder, config: Mapping[str, Any]
) -> Iterator[Loggers]:
    """Opens loggers that write to the folder `loggers/` of a run; a logger starts when its first
    step arrives.

    Args:
      names: Result of `parse`.
      folder: Run folder, which exists already.
      config: Config of the run; its secrets are replaced before loggers receive it.
    """
    channels = []
    for name in names:
        own = folder.loggers / name
        own.mkdir(parents=True, exist_ok=True)
        about = About(folder.path.name, _run_id(folder.loggers), own, redact.config(config))
        sent = folder.loggers / f"{name}.sent"
        channels.append(Channel(name, _maker(name, about), sent, folder.metrics_path))
    with contextlib.closing(Loggers(channels)) as loggers:
        yield loggers


def _run_id(folder: pathlib.Path) -> str:
    """Returns the id of the run; creates the id at the first call for a folder."""
    path = folder / "run_id"
    if not path.exists():
        write_atomic(path, uuid.uuid4().hex[:12] + "\n")
    return path.read_text().strip()


def _maker(name: str, about: About) -> Callable[[], Any]:
    """Returns a constructor of the logger.

    Imports its package now, because importing large packages in several threads can fail.
    """
    _, module, kind = LOGGERS[name]
    if name in _FOLDERS:
        os.environ.setdefault(_FOLDERS[name], str(about.folder))
    made = getattr(importlib.import_module(module), kind)
    return lambda: made(about)
