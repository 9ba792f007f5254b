"""Start of the commands: flags that all share, and errors of one line. It needs no JAX."""

import contextlib
import functools
import pathlib
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn, TypeVar

import ml_collections
from absl import app, flags
from ml_collections import config_flags

from agentgym_jax.cli import command_line, lasting_output
from agentgym_jax.config import config_files
from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.runs import interrupts, redact
from agentgym_jax.runs.config_differences import flatten

LIST = flags.DEFINE_bool("list", False, "Lists the shipped configs and the algorithms.")
KEYS = flags.DEFINE_bool("keys", False, "Lists the keys of --config with their values.")

T = TypeVar("T")


def launch(
    main: Callable[[list[str]], object],
    *required: str,
    algorithms: Iterable[str] = (),
    errors: tuple[type[Exception], ...] = (),
    only_flags: bool = True,
) -> None:
    """Runs `main` with required flags; a wrong call gives one line instead of a traceback.

    Flags that ask for a text, such as --help, print it instead; --list names the `algorithms`.
    Errors of the kinds `errors` give one line, too. Other arguments than flags are refused if
    `only_flags` is True.
    """
    lasting_output.install()
    has_config = "config" in flags.FLAGS
    known = ("list", "keys", "compilation_cache") if has_config else ()
    shared = tuple(name for name in known if name in flags.FLAGS)
    found = [name for name, _ in config_files.shipped_configs()] if has_config else []
    text = command_line.answer(sys.argv, main, required, shared, found)
    if text is None and has_config and "--list" in sys.argv:
        text = _list_shipped(algorithms)
    if text is not None:
        sys.stdout.write(text)
        sys.exit(0)
    if has_config and "--keys" in sys.argv:
        required = ("config",)
    flags.mark_flags_as_required(required)

    def run(arguments: list[str]) -> object:
        interrupts.raise_once()
        try:
            if only_flags and len(arguments) > 1:
                raise app.UsageError(f"unexpected argument {arguments[1]!r}; flags start with --")
            return main(arguments)
        except app.UsageError as error:
            _fail(f"{error}; --help shows how the command is called")
        except errors as error:
            _fail(f"agentgym_jax.{pathlib.Path(sys.argv[0]).stem}: {error}")
        except KeyboardInterrupt:
            sys.stderr.write("\ninterrupted\n")
            sys.exit(128 + signal.SIGINT)

    app.run(run, flags_parser=functools.partial(_parse_flags, required=required))


def given(flag: flags.FlagHolder[T | None]) -> T:
    """Returns the value of a flag that `launch` requires."""
    assert flag.value is not None, f"--{flag.name} is not required"
    return flag.value


def _list_shipped(algorithms: Iterable[str]) -> str:
    lines = ["Configs (--config=FILE:OPTIONS; every file names its options):"]
    lines += [f"  {name}\n      {about}" for name, about in config_files.shipped_configs()]
    lines.append(f"Algorithms (functions of configs/common.py): {', '.join(algorithms)}")
    lines.append("Keys (--config.SECTION.KEY=VALUE): --config=FILE --keys, docs/config.md")
    return "\n".join(lines) + "\n"


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"\n{redact.text(message)}\n")
    sys.exit(1)


def _parse_flags(argv: Sequence[str], required: Sequence[str]) -> list[str]:
    argv = config_files.find_shipped_config(argv)
    loaded = _load_config(argv)
    try:
        added: dict[str, str] = {}
        if loaded is not None:
            argv, added = config_files.absent_keys(argv, loaded)
        with _command_line(argv):
            rest = flags.FLAGS(argv)
        if loaded is not None:
            flag = flags.FLAGS["config"]
            overrides = config_flags.get_override_values(flag)
            overrides.update(config_files.add_keys(flag.value, added))
        for name in required:
            if flags.FLAGS[name].value == "":
                _fail(f"--{name}= is empty: give it a value")
        if KEYS.value:
            config = flags.FLAGS["config"].value
            if isinstance(config, str):  # a sweep file, which has several configs
                _fail(
                    "--keys: a sweep has no keys; `agentgym_jax.train --keys` lists those of a run"
                )
            for key, value in flatten(redact.config(plain(config))).items():
                shown = value if isinstance(value, str) else repr(value)
                sys.stdout.write(f"--config.{key}={shown}\n")
            sys.exit(0)
        return rest
    except ConfigError as error:
        _fail(f"--{error}")
    except flags.Error as error:
        _fail(_extract_flag(str(error)))


@contextlib.contextmanager
def _command_line(argv: Sequence[str]) -> Iterator[None]:
    """Replaces `sys.argv`, in which ml_collections looks for the overridden keys."""
    before = sys.argv
    sys.argv = list(argv)
    try:
        yield
    finally:
        sys.argv = before


def _load_config(argv: Sequence[str]) -> ml_collections.ConfigDict | None:
    """Returns the config of --config; None without one, and for the file of a sweep.

    Exits if it cannot be loaded; an error of ml_collections would have many lines.
    """
    if config := next((value for _, value in config_files.config_values(argv)), ""):
        try:
            config_files.check_exists(config.partition(":")[0])
            if flags.FLAGS["config"].flag_type() != "string":  # the name of a sweep file is one
                return config_files.load_config(config)
        except ConfigError as error:
            _fail(f"--{error}")
    return None


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
    is_number = re.match(
        r"(--.*): (invalid literal for int|could not convert string to float)", text
    )
    if is_number:
        kind = "a whole number" if "int" in is_number[2] else "a number"
        return f"{is_number[1]}: expected {kind}"
    return text
