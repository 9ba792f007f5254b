"""Weights & Biases: offline in the run folder unless WANDB_MODE says otherwise.

`wandb sync RUN/loggers/wandb/wandb/offline-run-*` uploads an offline run, in the order of its
starts; all of them have one id.
"""

import os
from collections.abc import Mapping

import wandb

from agentgym_jax.loggers.about import PROJECT, About

_MODE = "WANDB_MODE"


class WeightsAndBiases:
    """Nothing but metrics and config: no console output, command line, code or machine facts."""

    def __init__(self, about: About):
        self._run = wandb.init(
            project=PROJECT,
            name=about.name,
            id=about.run_id,
            dir=str(about.folder),
            config=dict(about.config),
            mode=os.environ[_MODE] if _MODE in os.environ else "offline",
            resume="allow",
            save_code=False,
            settings=wandb.Settings(
                console="off",
                silent=True,
                disable_git=True,
                x_disable_meta=True,  # would have the command line in it
                x_disable_stats=True,
            ),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One row."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Writes what is left."""
        self._run.finish()
