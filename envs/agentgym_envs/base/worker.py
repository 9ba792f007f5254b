"""A worker process: holds environments and answers one request after the other over a socket.

Started by `workers.py` as `python -m agentgym_envs.base.worker MODULE FD [--compat] [--options JSON]`.
It ends when the server closes the socket, when the server is gone, or when its simulator is lost.
"""

import argparse
import json
import logging
import multiprocessing.connection
import os
import pickle
import signal
import sys
import threading
import time

from agentgym_envs.base.environment import EnvironmentFault, SetupError, SimulatorLost
from agentgym_envs.base.host import SessionHost
from agentgym_envs.base.kind import load_kind
from agentgym_envs.base.messages import Fault, Ready, Refusal, Reply

_LOGGER = logging.getLogger(__name__)

_PARENT_POLL_SECONDS = 1.0
EXIT_LOST = 3  # status of a worker whose simulator is lost


def main(argv: list[str] | None = None) -> int:
    """Serves until the server hangs up; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m agentgym_envs.base.worker")
    parser.add_argument("module", help="module with make_kind()")
    parser.add_argument("fd", type=int, help="inherited socket")
    parser.add_argument("--compat", action="store_true")
    parser.add_argument("--options", type=json.loads, default={}, help="of make_kind, as JSON")
    parser.add_argument("--log-level", default="WARNING")
    args = parser.parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=args.log_level,
        format=f"%(asctime)s %(levelname)s worker {os.getpid()} %(name)s: %(message)s",
    )
    # Ctrl-C at a terminal is for the server, which then hangs up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_server, args=(os.getppid(),), daemon=True).start()
    with multiprocessing.connection.Connection(args.fd) as connection:
        try:
            kind = load_kind(args.module, args.options)
            kind.prepare()
        except SetupError as error:
            connection.send(Refusal(str(error)))
            return 1
        connection.send(Ready())
        return _serve(connection, SessionHost(kind, args.compat))


def _serve(connection: multiprocessing.connection.Connection, host: SessionHost) -> int:
    while True:
        try:
            operation, session_id, argument = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            break
        try:
            reply: Reply = host.answer(operation, session_id, argument)
        except EnvironmentFault as fault:
            reply = Fault(fault.kind, fault.message, fault.compat_message)
        except SimulatorLost as error:
            _LOGGER.error("the simulator is lost: %s", error)
            return EXIT_LOST
        try:
            connection.send(reply)
        except OSError:  # the server is gone
            break
    try:
        host.close_all()
    except SimulatorLost:
        return EXIT_LOST
    return 0


def _end_with_server(server_pid: int) -> None:
    """Ends this process and its children when the server was killed, even in a hanging step."""
    while os.getppid() == server_pid:
        time.sleep(_PARENT_POLL_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)  # `workers.py` gave this process a group of its own


if __name__ == "__main__":
    sys.exit(main())
