"""Command line of the embedded web sites: `python -m agentgym_sites prepare|start|status|stop`."""

import argparse
import json
import os
import pathlib
import queue
import signal
import sys
from collections.abc import Sequence

from agentgym_envs.base.environment import SetupError
from agentgym_envs.data_folder import data_folder
from agentgym_sites import cluster
from agentgym_sites.preparation import prepare
from agentgym_sites.site import EPISODE_HEADER, is_healthy


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m agentgym_sites",
        description="The embedded sites of the web navigation environment, which starts them "
        "itself. This command prepares them ahead of time, or runs them for inspection.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("prepare", "make the sites' databases, once"),
        ("start", "start the sites, print their addresses, run until Ctrl-C"),
        ("status", "print the addresses of running sites and whether they answer"),
        ("stop", "stop the sites that `start` started"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument(
            "--folder",
            type=pathlib.Path,
            default=data_folder() / "webarena",
            help="folder in which the sites are prepared and run (default: %(default)s)",
        )
        if name in ("prepare", "start"):
            command.add_argument(
                "--site",
                action="append",
                choices=sorted(cluster.MODULES),
                help="only this site; may be repeated",
            )
    options = parser.parse_args(arguments)
    try:
        return _COMMANDS[options.command](options)
    except SetupError as error:
        _say(str(error))
        return 1


def _sites(options: argparse.Namespace) -> list:
    if options.site is None:
        return cluster.all_sites()
    return [cluster.make_site(name) for name in cluster.MODULES if name in options.site]


def _prepare(options: argparse.Namespace) -> int:
    for site in _sites(options):
        sys.stdout.write(f"{prepare(site, options.folder)}\n")
    return 0


def _start(options: argparse.Namespace) -> int:
    stop: queue.SimpleQueue[int] = queue.SimpleQueue()  # a handler must not wait for a lock
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stop.put(number))
    with cluster.Cluster(options.folder, _sites(options), _say) as running:
        sys.stdout.write(json.dumps({"urls": running.urls}, indent=1) + "\n")
        sys.stdout.flush()
        _say(f"every request needs the header {EPISODE_HEADER}: <any id>; Ctrl-C stops the sites")
        stop.get()
    return 0


def _status(options: argparse.Namespace) -> int:
    clusters = cluster.running_clusters(options.folder)
    for state in clusters:
        answering = {
            name: is_healthy("/".join(url.split("/")[:3])) for name, url in state["urls"].items()
        }
        sys.stdout.write(json.dumps(state | {"answers": answering}, indent=1) + "\n")
    if not clusters:
        _say(f"no sites are running from {options.folder}")
    return 0 if clusters else 3


def _stop(options: argparse.Namespace) -> int:
    for state in cluster.running_clusters(options.folder):
        os.kill(state["pid"], signal.SIGTERM)
        _say(f"asked process {state['pid']} to stop")
    return 0


_COMMANDS = {"prepare": _prepare, "start": _start, "status": _status, "stop": _stop}


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
