"""Trains a policy: python -m agentgym_jax.train --config=configs/quickstart.py --workdir=runs/first

A second call with the same workdir resumes. Every value of the config can be changed on the
command line: --config.optimizer.learning_rate=1e-4
"""

import pathlib
import sys

import jax
from absl import app, flags, logging
from ml_collections import config_flags

from agentgym_jax.env_client.errors import EnvError
from agentgym_jax.learner.checkpoint import CheckpointError
from agentgym_jax.run.rl import open_rl
from agentgym_jax.run.run import StopFlag, StopRequested
from agentgym_jax.run.sections import ConfigError, plain
from agentgym_jax.run.sft import open_sft
from agentgym_jax.run_folder import RunFolderError
from agentgym_jax.training import rl, sft
from agentgym_jax.viewer.plots import write_plots

JOBS = {"rl": (open_rl, rl.train), "sft": (open_sft, sft.train)}

_CONFIG = config_flags.DEFINE_config_file("config", None, "Config file.", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Run folder; made, or resumed if it exists.")
_CACHE = flags.DEFINE_string(
    "compilation_cache",
    "~/.cache/agentgym_jax/xla",
    "Folder of compiled programs, shared by runs; empty for none.",
)


def main(argv: list[str]) -> int:
    """Runs the job of the config; returns the exit status."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}; flags start with --")
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)  # the console says what a person wants to know
    if _CACHE.value:
        cache = pathlib.Path(_CACHE.value).expanduser()
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    config = plain(_CONFIG.value)
    try:
        return run_job(config, _WORKDIR.value)
    except (ConfigError, RunFolderError, CheckpointError, EnvError, RuntimeError, ValueError) as error:
        if logging.level_debug():
            raise
        sys.stderr.write(f"\nagentgym_jax.train: {error}\n")
        return 1


def run_job(config: dict, workdir: str) -> int:
    """Opens, trains and closes one job; returns the exit status."""
    if config.get("job") not in JOBS:
        raise ConfigError(f"config.job={config.get('job')!r} is none of {', '.join(JOBS)}")
    open_job, train = JOBS[config["job"]]
    with StopFlag().installed() as stop:
        try:
            with open_job(config, workdir, stop) as (run, parts):
                train(run, parts)
        except StopRequested as stopped:
            logging.warning("%s; the same command goes on from there", stopped)
            return 0
    write_plots(workdir)
    logging.info("plots are in %s/plots", workdir)
    return 0


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    app.run(main)
