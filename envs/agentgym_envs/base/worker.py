"""A worker process, which runs environments and answers one request after the other over a socket.

`workers.py` starts it as `python -m agentgym_envs.base.worker MODULE FD [--compat] [--options
JSON]`. It exits when the server closes the socket or is gone, or when its simulator is lost.
"""

import argparse
import faulthandler
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
from agentgym_envs.base.messages import Fault, Reply
from agentgym_envs.base.served import load_environment, prepare

_LOGGER = logging.getLogger(__name__)

_PARENT_POLL_SECONDS = 1.0
EXIT_LOST = 3  # exit status of a worker whose simulator is lost


def main(argv: list[str] | None = None) -> int:
    """Serves until the server closes the socket; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m agentgym_envs.base.worker")
    parser.add_argument("module", help="module with make_served_environment()")
    parser.add_argument("fd", type=int, help="inherited socket")
    parser.add_argument("--compat", action="store_true")
    parser.add_argument(
        "--options", type=json.loads, default={}, help="options of the environment, as JSON"
    )
    parser.add_argument("--log-level", default="WARNING")
    args = parser.parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=args.log_level,
        format=f"%(asctime)s %(levelname)s worker {os.getpid()} %(name)s: %(message)s",
    )
    # Ctrl-C at a terminal is for the server, which then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1)  # for a step that hangs
    threading.Thread(target=_end_with_server, args=(os.getppid(),), daemon=True).start()
    with multiprocessing.connection.Connection(args.fd) as connection:
        try:
            served = load_environment(args.module, args.options)
            prepare(served)
        except SetupError as error:
            connection.send(str(error))
            return 1
        connection.send(None)
        return _serve(connection, SessionHost(served, args.compat))


def _serve(connection: multiprocessing.connection.Connection, host: SessionHost) -> int:
    while True:
        try:
            operation, session_id, argument = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            break
        try:
            reply: Reply = host.answer(operation, session_id, argument)
        except EnvironmentFault as fault:
            reply = Fault(fault.kind, fault.message, fault.compat_message, fault.origin)
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
    """Kills this process and its children when the server is gone, even during a hanging step."""
    while os.getppid() == server_pid:
        time.sleep(_PARENT_POLL_SECONDS)
    os.killpg(os.getpgrp(), signal.SIGKILL)  # `workers.py` gave this process a separate group


if __name__ == "__main__":
    sys.exit(main())
