"""Logger for trackio: a database in the run folder, unless TRACKIO_DIR or TRACKIO_SPACE_ID is set.

`TRACKIO_DIR=RUN/loggers/trackio trackio show` shows the database.
"""

import trackio

from agentgym_jax.telemetry.loggers.about import PROJECT, About, RunLogger


class Trackio(RunLogger):
    """Logger for trackio.

    A resumed run finds its trackio run by name; the name contains the id of the run.
    """

    def __init__(self, about: About):
        run = trackio.init(
            project=PROJECT,
            name=f"{about.name}-{about.run_id}",
            config=dict(about.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        super().__init__(run)
