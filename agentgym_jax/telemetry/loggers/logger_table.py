"""Config key `loggers`: `none`, or names of loggers joined by `+`, such as `tensorboard+wandb`."""

import contextlib
import functools
import importlib
import importlib.util
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.base import extras
from agentgym_jax.runs import redact
from agentgym_jax.runs.atomic_files import write_atomic
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.loggers import packages
from agentgym_jax.telemetry.loggers.channel import Channel

# package and constructor of each logger; the extra in setup.py has the name of the logger
LOGGERS = {
    "tensorboard": ("tensorboardX", packages.TensorBoard),
    "wandb": ("wandb", packages.open_wandb),
    "mlflow": ("mlflow", packages.MLflow),
    "trackio": ("trackio", packages.open_trackio),
}
_CLOSE_S = 20.0  # time limit in seconds for closing all loggers together


def parse(word: str) -> tuple[str, ...]:
    """Returns the names in `word`; raises ValueError if one is unknown or its package missing."""
    if word == "none":
        return ()
    names = tuple(word.split("+"))
    for name in names:
        if name not in LOGGERS:
            raise ValueError(
                f"loggers={word!r}: {name!r} is none of {', '.join(LOGGERS)}; write 'none', one of "
                "them, or several joined by '+'"
            )
    for name in names:
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
    """Opens the loggers `names`, which write to `loggers/` and receive `config` without secrets."""
    channels = []
    for name in names:
        own = folder.loggers / name
        own.mkdir(parents=True, exist_ok=True)
        id_file = folder.loggers / "run_id"
        if not id_file.exists():
            write_atomic(id_file, uuid.uuid4().hex[:12] + "\n")
        about = packages.About(
            folder.path.name, id_file.read_text().strip(), own, redact.config(config)
        )
        if name == "trackio":
            os.environ.setdefault("TRACKIO_DIR", str(own))  # trackio reads the variable on import
        package, constructor = LOGGERS[name]
        # imported in this thread, because importing large packages in several threads can fail
        make = functools.partial(constructor, importlib.import_module(package), about)
        sent = folder.loggers / f"{name}.sent"
        channels.append(Channel(name, make, sent, folder.metrics_path))
    with contextlib.closing(Loggers(channels)) as loggers:
        yield loggers
