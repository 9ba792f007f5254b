"""trackio: a database in the run folder unless TRACKIO_DIR or TRACKIO_SPACE_ID say otherwise.

`TRACKIO_DIR=RUN/loggers/trackio trackio show` shows it.
"""

from collections.abc import Mapping

import trackio

from agentgym_jax.loggers.about import PROJECT, About


class Trackio:
    """One run, found again by its name, which has the run's id in it."""

    def __init__(self, about: About):
        self._run = trackio.init(
            project=PROJECT,
            name=f"{about.name}-{about.run_id}",
            config=dict(about.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One row."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Writes what is left."""
        self._run.finish()
