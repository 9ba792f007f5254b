"""Command line: serves an environment over HTTP, records demonstrations, checks an environment.

python -m agentgym_envs textcraft --port 36001
python -m agentgym_envs textcraft --protocol=openenv
python -m agentgym_envs demonstrations babyai --tasks 0,1,2 --agent expert --out demos.jsonl
python -m agentgym_envs check textcraft
python -m agentgym_envs prepare searchqa
python -m agentgym_envs new my_game

Every command also accepts the module of your own environment instead of a name: python -m
agentgym_envs my_envs.guess
"""

import signal

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during an import: no traceback

import argparse
import contextlib
import errno
import logging
import os
import pathlib
import sys
from collections.abc import Sequence

from agentgym_envs import __version__, demonstrations, scaffold
from agentgym_envs.base import options, serve
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.openenv import server as openenv_server
from agentgym_envs.base.openenv.application import create_openenv_app
from agentgym_envs.base.served import load_environment, prepare
from agentgym_envs.base.server import create_app
from agentgym_envs.conformance import suite
from agentgym_envs.registry import ENVIRONMENTS, find

PROTOCOLS = ["agentgym", "openenv"]
# What to change, by the number of an error of the operating system.
_REMEDIES = {
    errno.ENOSPC: "free some space on the disk",
    errno.EDQUOT: "free some space on the disk",
    errno.EACCES: "choose a path that you can read and write",
    errno.EPERM: "choose a path that you can read and write",
    errno.EROFS: "choose a path on a disk that can be written",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a file is in the place of a folder; choose another path",
    errno.EISDIR: "expected a file; choose another path",
}
LOG_LEVELS = ["debug", "info", "warning", "error", "critical"]


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Returns the argument parser, with one more command if the first argument is a module."""
    parser = argparse.ArgumentParser(
        prog="python -m agentgym_envs",
        description="Environment servers that speak AgentGym's HTTP protocol or OpenEnv's.",
        epilog="Instead of a name, every command takes the module of another environment, such as "
        "my_envs.guess: it must be importable and offer make_served_environment().",
    )
    parser.add_argument("--version", action="version", version=f"agentgym-envs {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, what: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name, help=what, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )

    for name, entry in ENVIRONMENTS.items():
        _add_server_options(add(name, f"serve {name}"), entry.port)
    _add_demonstration_options(
        add("demonstrations", "write episodes of a scripted agent as AgentGym trajectory records")
    )
    _add_check_options(add("check", "run the conformance checks on an environment"))
    new = add("new", "write the files of an environment of your own: module, config and test")
    new.add_argument("name", help="name of the environment and of its module")
    new.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(), help="where to write")
    new.add_argument("--log-level", default="warning", choices=LOG_LEVELS)
    _add_prepare_options(add("prepare", "build the files of an environment on this machine, once"))
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands.choices:
        _add_server_options(add(arguments[0], f"serve {arguments[0]}"), find(arguments[0]).port)
    return parser


def _add_server_options(parser: argparse.ArgumentParser, port: int) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on; others need --token-file")
    add("--port", type=int, default=port, help="0 takes a free port; the ready line names it")
    add(
        "--protocol",
        choices=PROTOCOLS,
        default="agentgym",
        help="wire format; openenv has WebSocket sessions and works with OpenEnv's clients",
    )
    add("--compat", action="store_true", help="behave as AgentGym's server, oddities included")
    add("--workers", type=int, default=1, help="processes that hold the environments")
    add("--capacity", type=int, default=1024, help="sessions alive at once")
    add("--idle-seconds", type=float, default=1800, help="close sessions unused for longer")
    add("--max-body-bytes", type=int, default=65536, help="longest accepted request body")
    add("--step-seconds", type=float, default=30, help="time limit for a simulator to answer")
    add("--busy-seconds", type=float, default=60, help="how long a request waits for a worker")
    add("--token-file", type=pathlib.Path, help="file with the bearer token clients must send")
    add(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="name besides localhost by which clients reach the server; may be given several times",
    )
    add("--parent-pid", type=int, help="stop when this process is gone")
    _add_common(parser, "warning")


def _add_demonstration_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _add_environment(parser)
    tasks = parser.add_mutually_exclusive_group(required=True)
    tasks.add_argument("--tasks", help="ids or indices, separated by commas")
    tasks.add_argument(
        "--tasks-file", type=pathlib.Path, help='JSON list such as [{"item_id": ..}], or lines'
    )
    add("--agent", choices=demonstrations.AGENTS, default="expert")
    add(
        "--epsilon",
        type=float,
        default=0.1,
        help="probability that the agents random and mixed take an arbitrary action seen so far",
    )
    add("--seed", type=int, default=0, help="seed of the random choices")
    add("--max-turns", type=int, default=20, help="actions after which an episode is cut")
    add("--thought", action="store_true", help="write a short Thought before each Action")
    add("--out", type=pathlib.Path, required=True, help="JSONL file to write")
    _add_common(parser, "info")


def _add_check_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _add_environment(parser)
    add("--tasks", type=int, default=suite.TASKS, help="number of tasks in the sample")
    add("--actions", type=int, default=suite.ACTIONS, help="maximum number of actions per task")
    add("--compat", action="store_true", help="check the behaviour of AgentGym's server")
    _add_common(parser, "critical")  # the report has the errors, without tracebacks


def _add_prepare_options(parser: argparse.ArgumentParser) -> None:
    _add_environment(parser)
    _add_common(parser, "warning")


def _add_common(parser: argparse.ArgumentParser, log_level: str) -> None:
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of this environment; may be given several times",
    )
    parser.add_argument("--log-level", default=log_level, choices=LOG_LEVELS)


def _add_environment(parser: argparse.ArgumentParser) -> None:
    known = ", ".join(ENVIRONMENTS)
    parser.add_argument("environment", help=f"{known}, or a module such as my_envs.guess")


def _check(args: argparse.Namespace) -> int:
    module = find(args.environment).module
    report = sys.stdout

    def write(text: str) -> None:
        report.write(text)
        report.flush()

    with contextlib.redirect_stdout(sys.stderr):  # output of the environment
        return suite.run(
            module,
            compat=args.compat,
            tasks=args.tasks,
            actions=args.actions,
            write=write,
            options=options.parse(args.option),
        )


def _prepare(args: argparse.Namespace) -> int:
    """Builds the data of an environment and prepares its shared resources."""
    served = load_environment(find(args.environment).module, options.parse(args.option))
    prepare(served)
    _write_now(f"{served.spec.name} is ready: version {served.spec.version}\n")
    return 0


def _new(args: argparse.Namespace) -> int:
    """Writes the files of a new environment and shows what to do with them."""
    for path in scaffold.write(args.name, args.folder):
        _write_now(f"wrote {path}\n")
    if args.folder.resolve() != pathlib.Path.cwd():
        _write_now(f"start these commands in {args.folder}:\n")
    _write_now(
        f"check it: python -m agentgym_envs check {args.name}\n"
        f"train on it: python -m agentgym_jax.train --config={args.name}_config.py "
        f"--workdir=runs/{args.name}\n"
        "score its scripted agent: python -m agentgym_jax.evaluate --config=configs/eval/held_out.py:"
        f"of={args.name}_config.py --workdir=runs/{args.name}_expert --model=expert\n"
    )
    return 0


def _describe(error: Exception) -> str:
    """Returns one line about an error, with a remedy for one of the operating system."""
    if not isinstance(error, OSError) or error.errno not in _REMEDIES:
        return str(error)
    place = "" if error.filename is None else f"{error.filename}: "
    return f"{place}{error.strerror}; {_REMEDIES[error.errno]}"


def _write_now(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _record(args: argparse.Namespace) -> int:
    if not 0 <= args.epsilon <= 1 or args.max_turns < 1:
        raise ValueError(
            f"--epsilon must be in 0..1 and --max-turns at least 1; got {args.epsilon} and "
            f"{args.max_turns}"
        )
    if args.out.is_dir():  # before episodes are recorded in vain
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(args.out))
    if args.tasks_file is None:
        listed = args.tasks.replace(",", " ")
    else:
        try:
            listed = args.tasks_file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"--tasks-file {args.tasks_file}: not UTF-8 ({error})") from error
    served = load_environment(find(args.environment).module, options.parse(args.option))
    prepare(served)
    indices = demonstrations.read_indices(listed, served.spec.name)
    records = demonstrations.record(
        served,
        indices,
        agent=args.agent,
        epsilon=args.epsilon,
        seed=args.seed,
        max_turns=args.max_turns,
        to_text=demonstrations.TEXTS[served.spec.action_format][args.thought],
    )
    demonstrations.write(records, len(indices), args.out)
    return 0


def _serve(args: argparse.Namespace) -> int:
    token = None if args.token_file is None else _read_token(args.token_file)
    serve.check_exposure(args.host, token)
    module = find(args.command).module
    chosen = options.parse(args.option)
    name = (
        args.command if args.command in ENVIRONMENTS else load_environment(module, chosen).spec.name
    )
    names = "workers capacity idle_seconds max_body_bytes busy_seconds step_seconds".split()
    common = {name: getattr(args, name) for name in names}
    common |= {"token": token, "host_names": args.allow_host, "options": chosen}
    place = (name, args.host, args.port, args.parent_pid)
    if args.protocol == "openenv":
        if args.compat:
            raise ValueError("--compat is for AgentGym's protocol; drop it or --protocol=openenv")
        serve.run(create_openenv_app(module, **common), *place, openenv_server.answer)
    else:
        serve.run(create_app(module, compat=args.compat, **common), *place, serve.answer)
    return 0


def _read_token(path: pathlib.Path) -> str:
    try:
        token = path.read_text(encoding="utf-8-sig", errors="replace").strip()
    except OSError as error:
        raise serve.ServeError(f"--token-file {path}: {error.strerror}") from error
    if not token or not token.isascii():
        raise serve.ServeError(f"--token-file {path}: expected one non-empty line of ASCII")
    return token


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        args = _parser(arguments).parse_args(arguments)
        logging.basicConfig(
            stream=sys.stderr,
            level=args.log_level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        commands = {
            "demonstrations": _record,
            "check": _check,
            "prepare": _prepare,
            "new": _new,
        }
        run = commands[args.command] if args.command in commands else _serve
        return run(args)
    except (serve.ServeError, SetupError, ValueError, OSError) as error:
        sys.stderr.write(f"agentgym_envs: {_describe(error)}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return 128 + signal.SIGINT


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
