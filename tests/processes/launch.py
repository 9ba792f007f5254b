"""Starts a run in new processes: one with one device, or several with fake CPU devices."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys

from tests import fast_programs
from tests.run_python import run_python

ROOT = pathlib.Path(__file__).parents[2]
LIMIT_S = 1200.0  # only ends runs that hang


def free_port():
    """Returns a port of the loopback interface that no process uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def started(command, count, *, devices, folder, variables=lambda i: {}):
    """Starts `count` processes that have `devices` devices in all; kills them at the end.

    `command` maps the flags of a process to its command line, `variables` its number to environment
    variables. The output of process i is in `folder/i.log`.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            str(ROOT / path) for path in ("", "envs", "tests/integration")
        ),
        **fast_programs.variables(f"--xla_force_host_platform_device_count={devices // count}"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    port, running = free_port(), []
    try:
        for i in range(count):
            flags = [f"--coordinator=127.0.0.1:{port}", f"--num_processes={count}"]
            flags = [*flags, f"--process_id={i}"] if count > 1 else []
            with (folder / f"{i}.log").open("w") as log:
                running.append(
                    subprocess.Popen(
                        command(flags, i),
                        env=environment | variables(i),
                        cwd=ROOT,
                        stdout=log,
                        stderr=log,
                    )
                )
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def finish(command, count, *, folder, **options):
    """Runs the processes to their ends; returns exit statuses and outputs."""
    with started(command, count, folder=folder, **options) as running:
        statuses = [process.wait(LIMIT_S) for process in running]
    return statuses, [(folder / f"{i}.log").read_text() for i in range(count)]


def train_alone(config, workdir, *overrides, **variables):
    """Trains in one process with one device; returns the finished process with its output."""
    flags = [f"--config={config}", f"--workdir={workdir}", *overrides]
    variables = {"XLA_FLAGS": ""} | variables  # not the eight devices of the tests
    return run_python("-m", "agentgym_jax.train", *flags, **variables)


def train(workdir, count, *overrides, devices=4, folder=None, by_process=None):
    """Trains `tests/integration/tiny.py`; `by_process` adds flags of single processes."""
    return finish(
        train_command(workdir, *overrides, by_process=by_process),
        count,
        devices=devices,
        folder=folder or workdir.with_name(f"{workdir.name}.logs"),
    )


TINY = ROOT / "tests/integration/tiny.py"


def train_command(workdir, *overrides, config=TINY, by_process=None):
    """Returns the function that `started` needs, for a run on all devices."""

    def command(flags, i):
        own = (by_process or {}).get(i, [])
        return [
            sys.executable,
            "-m",
            "agentgym_jax.train",
            f"--config={config}",
            "--config.mesh.fsdp=-1",
            f"--workdir={workdir}",
            "--noplots_at_end",
            *flags,
            *overrides,
            *own,
        ]

    return command
