"""The config word `loggers`: `none`, or names joined by `+` such as `tensorboard+wandb`."""

import contextlib
import importlib
import importlib.util
import os
import pathlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.base import extras
from agentgym_jax import redact
from agentgym_jax.loggers.about import About
from agentgym_jax.loggers.channel import Channel
from agentgym_jax.run_folder import RunFolder, write_atomic

# Name -> the package it needs, our module, the class in it. An extra of setup.py has each name.
LOGGERS = {
    "tensorboard": ("tensorboardX", "agentgym_jax.loggers.tensorboard", "TensorBoard"),
    "wandb": ("wandb", "agentgym_jax.loggers.weights_and_biases", "WeightsAndBiases"),
    "mlflow": ("mlflow", "agentgym_jax.loggers.mlflow", "MLflow"),
    "trackio": ("trackio", "agentgym_jax.loggers.trackio", "Trackio"),
}
# What a package reads once, when it is imported: where it keeps its files.
_FOLDERS = {"trackio": "TRACKIO_DIR"}
_CLOSE_S = 20.0  # for all of them together


def parse(word: str) -> tuple[str, ...]:
    """Names in the order given; checks that their packages are installed, and imports none.

    Raises:
      ValueError: a name is unknown or comes twice, or its package is missing.
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
    """All loggers of a run; `log` costs microseconds."""

    def __init__(self, channels: Sequence[Channel]):
        self._channels = tuple(channels)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hands a step, whose line is in metrics.jsonl, to all of them."""
        for channel in self._channels:
            channel.log(step, values)

    def close(self) -> None:
        """Waits for them, for a bounded time."""
        for channel in self._channels:
            channel.close(_CLOSE_S / len(self._channels))


@contextlib.contextmanager
def open_loggers(
    names: Sequence[str], folder: RunFolder, config: Mapping[str, Any]
) -> Iterator[Loggers]:
    """Loggers that write below `loggers/` of a run folder; they begin with the first step.

    Args:
      names: from `parse`.
      folder: started.
      config: of the run; what is secret in it is hidden.
    """
    channels = [
        Channel(
            name,
            _maker(name, _about(name, folder, config)),
            folder.loggers / f"{name}.sent",
            folder.metrics_path,
        )
        for name in names
    ]
    loggers = Loggers(channels)
    try:
        yield loggers
    finally:
        loggers.close()


def _about(name: str, folder: RunFolder, config: Mapping[str, Any]) -> About:
    own = folder.loggers / name
    own.mkdir(parents=True, exist_ok=True)
    return About(folder.path.name, _run_id(folder.loggers), own, redact.config(config))


def _run_id(folder: pathlib.Path) -> str:
    """Made once in the life of a run folder."""
    path = folder / "run_id"
    if not path.exists():
        write_atomic(path, uuid.uuid4().hex[:12] + "\n")
    return path.read_text().strip()


def _maker(name: str, about: About) -> Callable[[], Any]:
    """Imports here, because large packages that are imported in several threads at once may fail."""
    _, module, kind = LOGGERS[name]
    if name in _FOLDERS:
        os.environ.setdefault(_FOLDERS[name], str(about.folder))
    made = getattr(importlib.import_module(module), kind)
    return lambda: made(about)
