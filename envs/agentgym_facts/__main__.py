"""Command line that builds, shows and checks the corpus."""

import argparse
import pathlib
import sys
from collections.abc import Sequence

from agentgym_envs.base.environment import SetupError
from agentgym_facts import build as building
from agentgym_facts import store


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns exit status 1 if the command failed or if a corpus is damaged."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except SetupError as error:
        sys.stderr.write(f"corpus: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agentgym_facts",
        description="The corpus of the searchqa environment: real facts from installed packages.",
        epilog="It is built in $AGENTGYM_DATA/searchqa, else in ~/.cache/agentgym/searchqa.",
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    build = commands.add_parser("build", help="build the corpus unless it exists")
    build.add_argument("--force", action="store_true", help="build it again")
    build.add_argument(
        "--wordnet",
        type=pathlib.Path,
        metavar="FILE",
        help="add WordNet's data.noun; gives a corpus of another version than the default",
    )
    build.add_argument(
        "--any-version",
        action="store_true",
        help="accept other versions of the packages; they lead to another version of the corpus",
    )
    build.set_defaults(run=_build)
    status = commands.add_parser("status", help="list the built corpora")
    status.set_defaults(run=_status)
    check = commands.add_parser("check", help="compare the files with the recorded digests")
    check.add_argument("folder", type=pathlib.Path, nargs="?", help="default: the default corpus")
    check.set_defaults(run=_check)
    return parser


def _build(options: argparse.Namespace) -> int:
    inputs = building.Inputs(wordnet=options.wordnet, any_version=options.any_version)
    sys.stdout.write(f"{building.build(inputs, force=options.force)}\n")
    return 0


def _status(options: argparse.Namespace) -> int:
    folders = sorted(f for f in store.corpora_folder().glob("*") if store.is_built(f))
    for folder in folders:
        sys.stdout.write(f"{_line(folder)}\n")
    if store.default_folder() not in folders:
        sys.stdout.write(
            f"the default corpus, {store.default_version()}, is not built in "
            f"{store.corpora_folder()}. Run: {store.COMMAND}\n"
        )
    return 0


def _line(folder: pathlib.Path) -> str:
    metadata = store.read_metadata(folder)
    files = metadata["files"]
    mark = " (default)" if folder == store.default_folder() else ""
    return (
        f"{folder}{mark}: {files[store.PASSAGES]['rows']:,} passages, "
        f"{files[store.QUESTIONS]['rows']:,} questions"
    )


def _check(options: argparse.Namespace) -> int:
    folder = options.folder or store.default_folder()
    found = store.faults(folder)
    sys.stdout.write(
        "".join(f"{fault}\n" for fault in found) or f"{folder} is complete and unchanged\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
