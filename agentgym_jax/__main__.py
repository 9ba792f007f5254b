"""Lists the commands of the package: python -m agentgym_jax"""

import ast
import functools
import pathlib
import sys

from agentgym_jax import __version__
from agentgym_jax.cli import scripts


def commands() -> dict[str, str]:
    """Returns the names of the commands with the first lines of their docstrings.

    The commands are not imported, because most of them import JAX, which takes seconds.
    """
    found = {}
    for name, start in vars(scripts).items():
        if isinstance(start, functools.partial):
            text = pathlib.Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
            about = ast.get_docstring(ast.parse(text)) or ""
            found[name] = about.partition("\n")[0]
    return found


def main(argv: list[str]) -> int:
    """Prints the commands; returns 1 if there are arguments, which belong to a command."""
    known = commands()
    words = [word for word in argv[1:] if word not in ("-h", "--help")]
    if words == ["--version"]:
        sys.stdout.write(f"agentgym_jax {__version__}\n")
        return 0
    if words:
        name = words[0] if words[0] in known else "COMMAND"
        sys.stderr.write(
            f"agentgym_jax: {words[0]!r} is no argument of the package; a command is started by "
            f"its module: python -m agentgym_jax.{name}. Commands: {', '.join(known)}\n"
        )
        return 1
    width = max(map(len, known))
    lines = [f"  {name.ljust(width)}  {about}" for name, about in known.items()]
    head = "python -m agentgym_jax.COMMAND starts a command, and --help shows its flags."
    sys.stdout.write("\n".join([head, "", *lines, ""]) + "\nDocumentation: docs/README.md\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
