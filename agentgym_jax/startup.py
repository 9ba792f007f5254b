"""What every entry point does first, and the errors that are the user's to mend."""

import pathlib

import jax
from absl import flags, logging

from agentgym_jax.env_client.errors import EnvError
from agentgym_jax.learner.checkpoint import CheckpointError
from agentgym_jax.rollout.collect import ContextTooSmallError
from agentgym_jax.run.sections import ConfigError
from agentgym_jax.run_folder import RunFolderError
from agentgym_jax.training.rl import LogprobGapError

# One line on stderr and exit status 1; anything else is a defect and keeps its traceback.
USER_ERRORS = (
    ConfigError,
    ContextTooSmallError,
    RunFolderError,
    CheckpointError,
    EnvError,
    LogprobGapError,
)

CACHE = flags.DEFINE_string(
    "compilation_cache",
    "~/.cache/agentgym_jax/xla",
    "Folder of compiled programs, shared by runs; empty for none.",
)


def prepare() -> None:
    """Quiet logging unless --verbosity is given, and the cache of compiled programs."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    if CACHE.value:
        cache = pathlib.Path(CACHE.value).expanduser()
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
