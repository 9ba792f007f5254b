"""Help, version and shell completion of the commands.

absl's own help ends with the flags of all imported libraries (--helpfull). The help here has the
docstring of a command and the flags that the command defines.
"""

import pathlib
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence

from absl import flags

import agentgym_jax

_WIDTH = 96
_COLUMN = 28  # the description of a flag begins at this column
_HELP = ("--help", "-help", "-h", "-?", "--helpshort")
_GENERAL = """\
Flags of every command:
  --help, --version         Print this text; print the version.
  --helpfull                Lists the flags of all libraries, too.
  --completion=bash         Prints a script: eval "$({script} --completion=bash)"
"""
# Completes flags, the files of --config and paths. Bash splits words at = and :, so the script
# takes the whole word from the line and answers with the part after the last separator.
_COMPLETION = """\
{function}() {{
    local line=${{COMP_LINE:0:COMP_POINT}}
    local word=${{line##* }}
    case $word in
        --config=*) COMPREPLY=($(compgen -W "{configs}" -- "${{word#*=}}") $(compgen -f -- "${{word#*=}}")) ;;
        --*=*) COMPREPLY=($(compgen -f -- "${{word##*=}}")) ;;
        -*) COMPREPLY=($(compgen -W "{flags}" -- "$word")) ;;
        *) COMPREPLY=($(compgen -f -- "$word")) ;;
    esac
}}
complete -o nospace -o filenames -F {function} {script}
"""


def answer(
    argv: Sequence[str],
    main: Callable[..., object],
    required: Sequence[str],
    shared: Iterable[str],
    configs: Iterable[str],
) -> str | None:
    """Returns the text that the command line asks for instead of a run; None for a run.

    The module of `main` has the docstring and the flags of the command. `required` are the flags that
    a run needs, `shared` those of other modules, and `configs` the paths of the shipped configs.
    """
    script = f"agentgym-{pathlib.Path(argv[0]).stem}"
    if any(argument in _HELP for argument in argv[1:]):
        return _help_text(script, main, required, shared)
    if "--version" in argv[1:]:
        return f"{script} {agentgym_jax.__version__}\n"
    if "--completion=bash" in argv[1:]:
        names = [_usage(flag) for flag in (*_own_flags(main), *_named(shared))]
        words = [name.partition("=")[0] + "=" * ("=" in name) for name in names]
        return _COMPLETION.format(
            function=f"_{script.replace('-', '_')}",
            script=script,
            flags=" ".join(word.replace("[no]", "") for word in [*words, "--help", "--version"]),
            configs=" ".join(configs) if any(w == "--config=" for w in words) else "",
        )
    return None


def _help_text(
    script: str, main: Callable[..., object], required: Sequence[str], shared: Iterable[str]
) -> str:
    lines = [(sys.modules[main.__module__].__doc__ or "").strip(), "", "Flags:"]
    for flag in (*_own_flags(main), *_named(shared)):
        lines += _describe(flag, flag.name in required)
    return "\n".join(lines) + "\n\n" + _GENERAL.format(script=script)


def _own_flags(main: Callable[..., object]) -> list[flags.Flag]:
    """Returns the flags that the module of `main` defines, in the order of the file."""
    module = main.__module__
    by_module = flags.FLAGS.flags_by_module_dict()
    return list(by_module.get(sys.argv[0] if module == "__main__" else module, ()))


def _named(names: Iterable[str]) -> list[flags.Flag]:
    return [flags.FLAGS[name] for name in names]


def _usage(flag: flags.Flag) -> str:
    """Returns a flag as it is typed, such as --port=N."""
    if flag.boolean:
        return f"--[no]{flag.name}" if flag.default else f"--{flag.name}"
    if isinstance(flag, flags.EnumFlag):
        return f"--{flag.name}={'|'.join(flag.parser.enum_values)}"
    if isinstance(flag.parser, flags.IntegerParser):
        return f"--{flag.name}=N"
    return f"--{flag.name}={'A,B' if isinstance(flag.parser, flags.ListParser) else '...'}"


def _describe(flag: flags.Flag, is_required: bool) -> list[str]:
    """Returns the lines of one flag: how it is typed, its meaning, and its default."""
    meaning = " ".join((flag.help or "").split())
    if isinstance(flag, flags.EnumFlag):  # absl prepends the values
        meaning = meaning.partition(">: ")[2]
    note = ""
    if is_required:
        note = " Required."
    elif flag.default not in (None, "", False, []) and not flag.boolean:
        note = f" Default: {flag.default}."
    texts = textwrap.wrap(f"{meaning}{note}", _WIDTH - _COLUMN, break_on_hyphens=False)
    usage = f"  {_usage(flag)}"
    lines = [f"{' ' * _COLUMN}{text}" for text in texts]
    if len(usage) + 2 > _COLUMN:
        return [usage, *lines]
    return [usage.ljust(_COLUMN) + texts[0], *lines[1:]]
