"""Setup that all entry points share, and the errors that users can fix."""

import ast
import ctypes
import difflib
import functools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import jax
from absl import app, flags, logging

from agentgym_jax import command_line, configs
from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.client.embedded import ServerFailed
from agentgym_jax.client.errors import EnvError
from agentgym_jax.jobs.config.sections import ConfigError, plain
from agentgym_jax.learner.checkpoint import CheckpointError
from agentgym_jax.processes import ProcessesError
from agentgym_jax.rollout.collect import ContextTooSmallError
from agentgym_jax.run_folder import RunFolderError
from agentgym_jax.telemetry import redact
from agentgym_jax.telemetry.guards import GuardStop
from agentgym_jax.telemetry.redact import LogFilter

# Errors that give one line on stderr and exit status 1; any other error keeps its traceback.
USER_ERRORS = (
    ConfigError,
    ContextTooSmallError,
    RunFolderError,
    CheckpointError,
    EnvError,
    ServerFailed,
    GuardStop,
    ProcessesError,
)

LIST = flags.DEFINE_bool("list", False, "Lists the shipped configs and the algorithms.")
KEYS = flags.DEFINE_bool("keys", False, "Lists the keys of --config with their values.")
CACHE = flags.DEFINE_string(
    "compilation_cache",
    "~/.cache/agentgym_jax/xla",
    "Folder of compiled programs, shared by runs; empty for none.",
)
_ARENA_MAX = -8  # constant M_ARENA_MAX of glibc's malloc.h
_ARENAS = 4


def limit_arenas() -> None:
    """Limits glibc to four heaps; must be called before the first threads start.

    glibc creates up to eight heaps per core, and each heap keeps its peak size. The threads that
    write checkpoints use arbitrary heaps, so memory would grow until all heaps have been used.
    MALLOC_ARENA_MAX overrides the limit.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_ARENA_MAX, _ARENAS)


def prepare() -> None:
    """Limits heaps, hides secrets in the log, and caches compiled programs."""
    limit_arenas()
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().addFilter(LogFilter())
    if CACHE.value:
        try:
            cache = pathlib.Path(CACHE.value).expanduser()
        except RuntimeError:  # the user has no home folder
            logging.warning("compiled programs are not kept: give --compilation_cache=FOLDER")
            return
        jax.config.update("jax_compilation_cache_dir", str(cache))
        # small programs are cached too, because a start compiles dozens of them
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def launch(main: Callable[[list[str]], object], *required: str) -> None:
    """Runs `main` with required flags; a wrong call gives one line instead of a traceback.

    Flags that ask for a text, such as --help, print it instead.
    """
    has_config = "config" in flags.FLAGS
    shared = ("list", "keys", CACHE.name) if has_config else ()
    found = [name for name, _ in _shipped_configs()] if has_config else []
    text = command_line.answer(sys.argv, main, required, shared, found)
    if text is None and has_config and "--list" in sys.argv:
        text = _list_shipped()
    if text is not None:
        sys.stdout.write(text)
        sys.exit(0)
    if has_config and "--keys" in sys.argv:
        required = ("config",)
    flags.mark_flags_as_required(required)

    def run(arguments: list[str]) -> object:
        try:
            return main(arguments)
        except app.UsageError as error:
            _fail(f"{error}; --help shows how the command is called")

    app.run(run, flags_parser=functools.partial(_parse_flags, required=required))


def find_shipped_config(argv: Sequence[str]) -> list[str]:
    """Returns the command line, with the path of the installed file for `--config=configs/...`.

    A file of that name below the current folder has precedence.
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


def _shipped_configs() -> list[tuple[str, str]]:
    """Returns paths of the shipped configs, each with the first line of its docstring."""
    folder = pathlib.Path(configs.__path__[0])
    found = []
    for path in sorted(folder.glob("**/*.py")):
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        if "--config=" in about:
            found.append((f"configs/{path.relative_to(folder).as_posix()}", about.splitlines()[0]))
    return found


def _list_shipped() -> str:
    lines = ["Configs (--config=FILE:OPTIONS; every file names its options):"]
    lines += [f"  {name}\n      {about}" for name, about in _shipped_configs()]
    lines.append(f"Algorithms (functions of configs/common.py): {', '.join(ALGORITHMS)}")
    lines.append("Keys (--config.SECTION.KEY=VALUE): --config=FILE --keys, docs/config.md")
    return "\n".join(lines) + "\n"


def _list_keys(section: Mapping[str, Any], name: str = "--config") -> Iterator[str]:
    """Yields the keys of a config with their values, as they are typed on a command line."""
    for key, value in section.items():
        if isinstance(value, dict) and value:
            yield from _list_keys(value, f"{name}.{key}")
        else:
            yield f"{name}.{key}={value if isinstance(value, str) else repr(value)}"


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"\n{redact.text(message)}\n")
    sys.exit(1)


def _parse_flags(argv: Sequence[str], required: Sequence[str]) -> list[str]:
    argv = find_shipped_config(argv)
    _check_config_file(argv)
    try:
        rest = flags.FLAGS(argv)
        for name in required:
            if flags.FLAGS[name].value == "":
                _fail(f"--{name}= is empty: give it a value")
        if KEYS.value:
            config = redact.config(plain(flags.FLAGS["config"].value))
            sys.stdout.write("\n".join(_list_keys(config)) + "\n")
            sys.exit(0)
        return rest
    except flags.Error as error:
        # ml_collections reports an error of the config file as the text of a traceback.
        refused = re.search(rf"{ConfigError.__module__}\.ConfigError: (.*)", str(error))
        if refused:
            _fail(f"--config={_config_argument(argv)}: {refused[1]}")
        _fail(_extract_flag(str(error)))
    except (AttributeError, KeyError) as error:
        # The error names only the last part of the dotted key. An error of the config file matches
        # no override and keeps its traceback.
        reason = str(error)
        for name in (arg.partition("=")[0] for arg in argv if arg.startswith("--config.")):
            if any(re.search(rf"\b{re.escape(part)}\b", reason) for part in name.split(".")[1:]):
                meant = re.search(r'Did you mean "(\w+)"', reason)
                hint = f"; did you mean {meant[1]}?" if meant else ""
                _fail(f"{name}: the config has no such key{hint}")
        raise


def _config_argument(argv: Sequence[str]) -> str:
    """Returns the value of --config; empty if it is absent."""
    for i, argument in enumerate(argv):
        name, is_given, value = argument.lstrip("-").partition("=")
        if argument.startswith("-") and name == "config":
            return value if is_given else next(iter(argv[i + 1 :]), "")
    return ""


def _check_config_file(argv: Sequence[str]) -> None:
    """Exits if --config names no file; the error of ml_collections would have many lines."""
    path = pathlib.Path(_config_argument(argv).partition(":")[0])
    if not path.name or path.is_file():
        return
    found = [name for name, _ in _shipped_configs()]
    nearest = difflib.get_close_matches(str(path), found, n=1, cutoff=0.8)
    hint = f"; did you mean {nearest[0]}?" if nearest else ". --list names those that are shipped"
    _fail(f"--config={path}: there is no such file{hint}")


def _extract_flag(message: str) -> str:
    """Returns one line about a flag, given an error message of absl."""
    text = " ".join(message.split()).removeprefix("flag ")
    is_missing = re.search(r"Flag --(\w+) must have a value other than None", text)
    if is_missing:
        return f"--{is_missing[1]} is missing; --help shows how the command is called"
    is_section = re.match(r"(--config\.\S+)=(.*?): Failed to parse .* as a ConfigDict", text)
    if is_section:
        return (
            f"{is_section[1]}={is_section[2]}: this key is a section. Set the keys in it; "
            "docs/config.md lists them"
        )
    return text
