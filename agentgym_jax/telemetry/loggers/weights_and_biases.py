"""Logger for Weights & Biases: writes to the run folder (offline) unless WANDB_MODE is set.

`wandb sync RUN/loggers/wandb/wandb/offline-run-*` uploads an offline run. Files of all starts have
the same id and are uploaded in order.
"""

import os

import wandb

from agentgym_jax.telemetry.loggers.about import PROJECT, About, RunLogger


class WeightsAndBiases(RunLogger):
    """Logger for Weights & Biases that sends only metrics and config: no console output, command
    line, code or machine facts.
    """

    def __init__(self, about: About):
        run = wandb.init(
            project=PROJECT,
            name=about.name,
            id=about.run_id,
            dir=str(about.folder),
            config=dict(about.config),
            mode=os.environ.get("WANDB_MODE", "offline"),
            resume="allow",
            save_code=False,
            settings=wandb.Settings(
                console="off",
                silent=True,
                disable_git=True,
                x_disable_meta=True,  # the metadata would include the command line
                x_disable_stats=True,
            ),
        )
        super().__init__(run)
