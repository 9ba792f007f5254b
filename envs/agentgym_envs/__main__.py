"""Command line: serves one environment over HTTP, or records demonstrations of scripted players.

python -m agentgym_envs textcraft --port 36001
python -m agentgym_envs demonstrations babyai --tasks 0,1,2 --player expert --out demos.jsonl
"""

import argparse
import logging
import pathlib
import sys

from agentgym_envs import demonstrations
from agentgym_envs.base import serve
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.kind import load_kind
from agentgym_envs.base.server import create_app
from agentgym_envs.kinds import KINDS

LOG_LEVELS = ["debug", "info", "warning", "error"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agentgym_envs",
        description="Environment servers that speak AgentGym's HTTP protocol.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, kind in KINDS.items():
        _add_server_options(
            commands.add_parser(
                name,
                help=f"serve {name}",
                formatter_class=argparse.ArgumentDefaultsHelpFormatter,
            ),
            kind.port,
        )
    _add_demonstration_options(
        commands.add_parser(
            "demonstrations",
            help="write episodes of a scripted player as AgentGym trajectory records",
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
    )
    return parser


def _add_server_options(parser: argparse.ArgumentParser, port: int) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on; others need --token-file")
    add("--port", type=int, default=port, help="0 takes a free port; the ready line names it")
    add("--compat", action="store_true", help="behave as AgentGym's server, oddities included")
    add("--workers", type=int, default=1, help="processes that hold the environments")
    add("--capacity", type=int, default=1024, help="sessions alive at once")
    add("--idle-seconds", type=float, default=1800, help="close sessions unused for longer")
    add("--max-body-bytes", type=int, default=65536, help="longest accepted request body")
    add("--step-seconds", type=float, default=30, help="stop a simulator that takes longer")
    add("--busy-seconds", type=float, default=60, help="how long a request waits for its turn")
    add("--token-file", type=pathlib.Path, help="file with the bearer token clients must send")
    add("--parent-pid", type=int, help="stop when this process is gone")
    add("--log-level", default="warning", choices=LOG_LEVELS)


def _add_demonstration_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("environment", choices=list(KINDS))
    tasks = parser.add_mutually_exclusive_group(required=True)
    tasks.add_argument("--tasks", help="ids or indices, separated by commas")
    tasks.add_argument(
        "--tasks-file", type=pathlib.Path, help='JSON list such as [{"item_id": ..}], or lines'
    )
    add("--player", choices=list(demonstrations.PLAYERS), default="expert")
    add(
        "--epsilon",
        type=float,
        default=0.1,
        help="share of turns that are detours, of the players random and mixed",
    )
    add("--seed", type=int, default=0, help="of the random choices")
    add("--max-turns", type=int, default=20, help="actions after which an episode is cut")
    add("--thought", action="store_true", help="write a short Thought before each Action")
    add("--out", type=pathlib.Path, required=True, help="JSONL file to write")
    add("--log-level", default="info", choices=LOG_LEVELS)


def _record(args: argparse.Namespace) -> None:
    if not 0 <= args.epsilon <= 1 or args.max_turns < 1:
        raise ValueError(
            f"--epsilon must be in 0..1 and --max-turns at least 1; got {args.epsilon} and "
            f"{args.max_turns}"
        )
    if args.tasks_file is None:
        listed = args.tasks.replace(",", " ")
    else:
        listed = args.tasks_file.read_text(encoding="utf-8")
    indices = demonstrations.read_indices(listed, args.environment)
    records = demonstrations.record(
        load_kind(KINDS[args.environment].module),
        indices,
        player=args.player,
        epsilon=args.epsilon,
        seed=args.seed,
        max_turns=args.max_turns,
        to_text=demonstrations.thoughtful_text if args.thought else demonstrations.plain_text,
    )
    demonstrations.write(records, len(indices), args.out)


def _serve(args: argparse.Namespace) -> None:
    token = None if args.token_file is None else _read_token(args.token_file)
    serve.check_exposure(args.host, token)
    app = create_app(
        KINDS[args.command].module,
        compat=args.compat,
        workers=args.workers,
        capacity=args.capacity,
        idle_seconds=args.idle_seconds,
        max_body_bytes=args.max_body_bytes,
        busy_seconds=args.busy_seconds,
        step_seconds=args.step_seconds,
        token=token,
    )
    serve.run(app, args.command, args.host, args.port, args.parent_pid)


def _read_token(path: pathlib.Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise serve.ServeError(f"--token-file {path}: {error.strerror}") from error
    if not token or not token.isascii():
        raise serve.ServeError(f"--token-file {path}: expected one non-empty line of ASCII")
    return token


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    args = _parser().parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=args.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        (_record if args.command == "demonstrations" else _serve)(args)
    except (serve.ServeError, SetupError, ValueError, OSError) as error:
        sys.stderr.write(f"agentgym_envs: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
