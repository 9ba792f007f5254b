"""Training jobs by the name in `config.job`, and the run of one job from a plain config."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from agentgym_jax.config.sections import ConfigError
from agentgym_jax.jobs.device_errors import device_errors
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.mesh import processes
from agentgym_jax.rl import build, loop
from agentgym_jax.rl import rl_config as rl
from agentgym_jax.supervised import agentevol, dpo, sft
from agentgym_jax.viewer.plots import write_plots


@dataclasses.dataclass(frozen=True)
class Job:
    """Kind of training job.

    Attributes:
      parse: Checks a plain config and returns its settings.
      open: Context manager of the run and its parts.
      train: Trains to the end of an open run.
    """

    parse: Callable[[Mapping[str, Any]], Any]
    open: Callable[..., Any]
    train: Callable[[Any, Any], None]


JOBS = {
    "rl": Job(rl.parse, build.open_rl, loop.train),
    "sft": Job(sft.parse, sft.open_sft, sft.train),
    "dpo": Job(dpo.parse, dpo.open_dpo, dpo.train),
    "agentevol": Job(agentevol.parse, agentevol.open_agentevol, agentevol.train),
}


def run_job(config: Mapping[str, Any], workdir: str, *, plots: bool = True) -> None:
    """Opens, runs and closes the job of a plain config, then draws its figures.

    If the folder has a run of the same config, the run is resumed.

    Raises:
      ConfigError: The config is invalid; nothing has been written.
      StopRequested: SIGTERM or Ctrl-C ended the run, which can be resumed.
      DeviceError: The memory of a device is exhausted.
    """
    if "job" not in config or config["job"] not in JOBS:
        raise ConfigError(
            f"config.job must be one of {', '.join(JOBS)}; a config without it, such as those of "
            "configs/eval, is for agentgym_jax.evaluate"
        )
    job = JOBS[config["job"]]
    with (
        StopFlag().installed() as stop,
        device_errors(config),
        job.open(config, workdir, stop) as (run, parts),
    ):
        with processes.announcing_failures():
            job.train(run, parts)
        if plots and processes.is_writer() and run.folder.metrics_path.stat().st_size:
            run.console.phase("plots", 0, 1)
            write_plots(workdir)
