"""Setup of the commands that compute, and their flag."""

from absl import flags, logging

from agentgym_jax.cli import process_setup

_CACHE = flags.DEFINE_string(
    "compilation_cache",
    process_setup.CACHE,
    "Folder of compiled programs, shared by runs; empty for none.",
)


def prepare() -> None:
    """Limits heaps, hides secrets in the log, and caches compiled programs."""
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    process_setup.protect()
    process_setup.cache_programs(_CACHE.value)
