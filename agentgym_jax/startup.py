"""What every entry point does first, and the errors that are the user's to mend."""

import pathlib
import re
import sys
from collections.abc import Callable, Sequence

import jax
from absl import app, flags, logging

from agentgym_jax import configs
from agentgym_jax.env_client.errors import EnvError
from agentgym_jax.learner.checkpoint import CheckpointError
from agentgym_jax.redact import LogFilter
from agentgym_jax.rollout.collect import ContextTooSmallError
from agentgym_jax.run.allocator import limit_arenas
from agentgym_jax.run.sections import ConfigError
from agentgym_jax.run_folder import RunFolderError
from agentgym_jax.training.guards import GuardStop

# One line on stderr and exit status 1; anything else is a defect and keeps its traceback.
USER_ERRORS = (
    ConfigError,
    ContextTooSmallError,
    RunFolderError,
    CheckpointError,
    EnvError,
    GuardStop,
)

CACHE = flags.DEFINE_string(
    "compilation_cache",
    "~/.cache/agentgym_jax/xla",
    "Folder of compiled programs, shared by runs; empty for none.",
)


def prepare() -> None:
    """Few heaps, logging without secrets, quiet unless --verbosity is given, compiled programs kept."""
    limit_arenas()
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().addFilter(LogFilter())
    if CACHE.value:
        try:
            cache = pathlib.Path(CACHE.value).expanduser()
        except RuntimeError:  # no home folder
            logging.warning("compiled programs are not kept: give --compilation_cache=FOLDER")
            return
        jax.config.update("jax_compilation_cache_dir", str(cache))
        # Small programs too: a start compiles dozens of them.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def launch(main: Callable[[list[str]], object], *required: str) -> None:
    """`app.run` that wants some flags and answers a misspelled `--config.a.b` with one line."""
    flags.mark_flags_as_required(required)
    app.run(main, flags_parser=_parse_flags)


def find_shipped_config(argv: Sequence[str]) -> list[str]:
    """Returns the command line with the path of the installed file in `--config=configs/...`.

    A file of that name below the current folder has precedence, so in a checkout nothing changes.
    """
    found = list(argv)
    for i, argument in enumerate(argv):
        flag, equals, value = argument.partition("=")
        if flag not in ("--config", "-config"):
            continue
        at = i if equals else i + 1
        path, colon, options = (value if equals else "".join(argv[at : at + 1])).partition(":")
        shipped = pathlib.Path(configs.__path__[0]) / path.removeprefix("configs/")
        if path.startswith("configs/") and not pathlib.Path(path).exists() and shipped.is_file():
            found[at] = f"{flag}=" * bool(equals) + f"{shipped}{colon}{options}"
    return found


def _parse_flags(argv: Sequence[str]) -> list[str]:
    argv = find_shipped_config(argv)
    try:
        return app.parse_flags_with_usage(argv)
    except (AttributeError, KeyError) as error:
        # Raised by ml_collections with the last name of the path alone. An error of the config
        # file itself names no part of an override, and keeps its traceback.
        reason = str(error)
        for name in (arg.partition("=")[0] for arg in argv if arg.startswith("--config.")):
            if any(re.search(rf"\b{re.escape(part)}\b", reason) for part in name.split(".")[1:]):
                meant = re.search(r'Did you mean "(\w+)"', reason)
                hint = f"; did you mean {meant[1]}?" if meant else ""
                sys.stderr.write(f"\n{name}: the config has no such key{hint}\n")
                sys.exit(1)
        raise
