"""The sandbox of terminal tasks: escapes, limits, files that persist, and nothing left behind."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import uuid

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.terminals import sandbox
from agentgym_envs.terminals.bubblewrap import Bubblewrap
from agentgym_envs.terminals.sandbox import HOME, Command, Limits
from agentgym_envs.terminals.tasks import File, pack
from tests.waiting import PATIENCE_S, until

ESCAPES = pathlib.Path(__file__).with_name("escapes.py")
FOLDERS = ("/app", HOME, "/tmp")
EMPTY = pack({}, FOLDERS)


@pytest.fixture(scope="module")
def bubblewrap():
    """A sandbox, where this machine gives one."""
    made = Bubblewrap()
    try:
        made.check()
    except SetupError as error:
        pytest.skip(str(error))
    return made


def run(made, text, files=EMPTY, limits=None, **fields):
    """Runs a command in /app, with time that no machine needs."""
    command = Command(text, FOLDERS, "/app", **fields)
    return made.run(command, files, limits or Limits(seconds=PATIENCE_S))


def python(script):
    """Returns a command that runs a script."""
    return f"python3 -I - <<'END'\n{script}\nEND"


def processes(mark):
    """Returns the numbers of the processes whose command line contains the mark."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_no_attempt_to_leave_the_sandbox_succeeds(bubblewrap, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("a file of the machine")
    name = uuid.uuid4().hex
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind("\0" + name)
        local.listen()
        arguments = f"{os.getpid()} {server.getsockname()[1]} {name} {secret}"
        files = pack({"/app/escapes.py": File(ESCAPES.read_bytes())}, FOLDERS)
        result = run(bubblewrap, f"python3 escapes.py {arguments}", files)
    assert result.status == 0
    assert result.output.decode().splitlines() == ["57 attempts"]


def test_files_persist_and_processes_variables_and_folders_do_not(bubblewrap):
    first = run(
        bubblewrap,
        "export A=1; mkdir -m 750 -p deep/er; cd deep/er; printf 'text' > file; ln -s file link; "
        "chmod 751 file; touch -d 2001-02-03 file; echo note > ~/note; sleep 1000 & echo $$",
    )
    assert first.status == 0
    second = run(
        bubblewrap,
        "pwd; echo [$A]; cat deep/er/link; echo; stat -c '%A %Y' deep/er deep/er/file | cut -c1-21; "
        "cat ~/note; ps x | grep -c '[s]leep'",
        first.files,
    )
    lines = second.output.decode().splitlines()
    assert lines[:3] == ["/app", "[]", "text"]
    assert lines[3].startswith("drwxr-x---")
    assert lines[4] == "-rwxr-x--x 981158400"
    assert lines[5:] == ["note", "0"]


FORKS = """import os, signal
try:
    for _ in range(500):
        os.fork() or signal.pause()
except OSError:
    print("no more")"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(python(FORKS), "no more", id="processes"),
        pytest.param(python("bytearray(3 << 30)"), "MemoryError", id="memory"),
        pytest.param("head -c 9M /dev/zero > a; echo $?", "153", id="file"),
        pytest.param("for i in a b; do head -c 3M /dev/zero > $i; done", "No space", id="disk"),
        pytest.param("cd /dev/shm; for i in a b; do head -c 3M /dev/zero > $i; done", "No space", id="shm"),
        pytest.param("truncate -s 1T sparse; echo $?", "153", id="sparse"),
        pytest.param(python("[open('/dev/null') for _ in range(999)]"), "many open files", id="open"),
    ],
)  # fmt: skip
def test_a_limit_is_an_error_for_the_command_and_not_for_the_machine(bubblewrap, text, expected):
    result = run(bubblewrap, text, limits=Limits(seconds=PATIENCE_S, disk_mib=4))
    assert expected in result.output.decode(), result


def test_output_is_shortened_in_the_middle(bubblewrap):
    limits = Limits(seconds=PATIENCE_S, output_bytes=10)
    result = run(bubblewrap, "seq 1 100000", limits=limits)
    assert (result.output, result.output_size) == (b"1\n2\n3000\n"[:5] + b"0000\n", 588_895)
    flood = run(bubblewrap, "yes", limits=limits)
    assert flood.status == 1  # a write error ends it
    assert flood.output_size == sandbox.OUTPUT_DISK_MIB << 20


def test_a_command_is_killed_after_its_time_and_its_files_are_kept(bubblewrap):
    limits = Limits(seconds=0.5)  # reached
    result = run(bubblewrap, "echo text > file; sleep 1000", limits=limits)
    assert result.status == 128 + signal.SIGKILL
    assert run(bubblewrap, "cat file", result.files).output == b"text\n"


def test_total_memory_is_limited(bubblewrap):
    script = "import subprocess, sys\nhold = 'x = b\"x\" * (40 << 20); input()'\n"
    script += "subprocess.Popen([sys.executable, '-c', hold], stdin=-1)\n" * 8
    script += "import time; time.sleep(1000)"
    limits = Limits(seconds=PATIENCE_S, memory_mib=150)
    assert run(bubblewrap, python(script), limits=limits).status is None


@pytest.mark.parametrize(
    "text",
    [
        "echo x > file; kill -9 -1",
        "echo x > file; chmod 000 file",
        "head -c 3M /dev/urandom > a; head -c 3M /dev/urandom > /tmp/a",
    ],
)
def test_files_that_cannot_be_kept_are_reported(bubblewrap, text):
    result = run(bubblewrap, text, limits=Limits(seconds=PATIENCE_S, disk_mib=4))
    assert result.files is None


def test_an_archive_of_the_agent_reaches_no_other_folder(bubblewrap):
    forged = pack({"/app/own": File(b""), "/extra/conftest.py": File(b"")}, FOLDERS)
    added = pack({"/extra/test.sh": File(b"")})
    result = run(bubblewrap, "ls /app /extra", forged, added=added, extra=("/extra",))
    assert result.output.split() == b"/app: own /extra: test.sh".split()
    climbing = pack({"/../app/../etc/new": File(b"")}, FOLDERS)
    assert b"new" not in run(bubblewrap, "ls /etc", climbing).output
    for garbage in (b"x" * 20_000, EMPTY[:700]):
        assert not run(bubblewrap, "ls", garbage).output


def test_a_command_leaves_nothing_on_the_machine(bubblewrap):
    mark = uuid.uuid4().hex
    before = sorted(os.listdir("/proc/self/fd")), sorted(os.listdir(tempfile.gettempdir()))
    run(bubblewrap, f"(trap '' TERM; setsid sleep 1000; echo {mark}) & disown; touch /tmp/{mark}")
    until(lambda: not processes(mark), "the end of all processes of the command")
    after = sorted(os.listdir("/proc/self/fd")), sorted(os.listdir(tempfile.gettempdir()))
    assert before[0] == after[0]
    assert not [name for name in after[1] if mark in name]


def test_a_sandbox_ends_with_a_killed_parent(bubblewrap):
    mark = uuid.uuid4().hex
    script = (
        "from agentgym_envs.terminals.sandbox import *\n"
        "from agentgym_envs.terminals.bubblewrap import Bubblewrap\n"
        f"Bubblewrap().run(Command('sleep 1000; : {mark}', (), '/'), b'', Limits(seconds=900))"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    # The parent, bubblewrap twice, the launcher, `timeout` and the command. Sandboxes of a parent that
    # dies earlier end with the time of their command.
    until(lambda: len(processes(mark)) == 6, "the start of the command")
    parent.kill()
    parent.wait()
    until(lambda: not processes(mark), "the end of all processes of the command")


@pytest.mark.parametrize(
    ("program", "remedy"),
    [
        (None, "bubblewrap is not installed. Run: apt-get install bubblewrap"),
        ("echo 'No permissions to create new namespace' >&2; exit 1", "max_user_namespaces"),
    ],
)
def test_a_machine_without_sandboxes_is_reported_with_the_remedy(program, remedy, monkeypatch):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        if program:
            path = pathlib.Path(folder, "bwrap")
            path.write_text(f"#!/bin/sh\n{program}\n")
            path.chmod(0o755)
        monkeypatch.setenv("PATH", folder)
        with pytest.raises(SetupError, match=remedy) as caught:
            Bubblewrap().check()
    assert "\n" not in str(caught.value)
