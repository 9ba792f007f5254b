"""Programs of an agent in deep search: results, limits, and attempts to escape."""

import contextlib
import os
import pathlib
import subprocess
import sys

import psutil
import pytest

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.data_folder import VARIABLE
from agentgym_envs.searchqa import program_child, programs, texts
from agentgym_envs.searchqa.served import make_served_environment
from tests.envs.searchqa import topics
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="programs need Linux")

CLOCK_SECONDS = programs.CLOCK_SECONDS


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Only the limit on CPU time ends a program, however busy the machine is."""
    monkeypatch.setattr(programs, "CLOCK_SECONDS", PATIENCE_S)


# A way back to ctypes, which `import` no longer finds, and with it to any system call.
NATIVE = """\
def classes(kind):
    for found in type.__subclasses__(kind):
        yield found
        yield from classes(found)
(CDLL,) = [found for found in classes(object) if found.__name__ == "CDLL"]
libc = CDLL(None, use_errno=True)
"""
ESCAPES = {
    "open": "open('/etc/passwd')",
    "os.open": "import os; os.open('/etc/passwd', os.O_RDONLY)",
    "list a folder": "import os; os.listdir('/')",
    "write a file": "open('/tmp/from_a_program', 'w')",
    "read the parent": "import os; open(f'/proc/{os.getppid()}/environ')",
    "read itself": "open('/proc/self/maps')",
    "fork": "import os; os.fork()",
    "spawn": "import os; os.posix_spawn('/bin/sh', ['sh'], {})",
    "exec": "import os; os.execv('/bin/sh', ['sh'])",
    "signal the parent": "import os; os.kill(os.getppid(), 9)",
    "signal itself": "import signal; signal.raise_signal(9)",
    "duplicate the output": "import os; os.dup(1)",
    "pipe": "import os; os.pipe()",
    "socket of a loaded module": "import sys; sys.modules['socket']",
    "import socket": "import socket",
    "import ctypes": "import ctypes",
    "import subprocess": "import subprocess",
    "import a C module": "import _socket",
    "import a builtin module": "import _thread; _thread.start_new_thread(print, (1,))",
    "import again by importlib": "import importlib; importlib.import_module('socket')",
    "load from a file": (
        "import importlib.machinery as m; "
        "m.SourceFileLoader('x', '/etc/passwd').get_data('/etc/passwd')"
    ),
    "finder of another class": (
        "import importlib.machinery as m; m.PathFinder.find_spec('socket').loader"
    ),
    "more memory": (
        f"{NATIVE}import struct\nlimit = struct.pack('QQ', 2**40, 2**40)\n"
        "assert libc.setrlimit(9, limit) == 0"
    ),
    "native open": f"{NATIVE}assert libc.open(b'/etc/passwd', 0) >= 0",
    "native socket": f"{NATIVE}assert libc.socket(2, 1, 0) >= 0",
    "native fork": f"{NATIVE}assert libc.fork() >= 0",
    "native thread": f"{NATIVE}assert libc.syscall(56, 0x10F00, 0, 0, 0, 0) >= 0",
    "native ptrace": f"{NATIVE}assert libc.ptrace(16, libc.getppid(), 0, 0) == 0",
    "remove the filter": f"{NATIVE}assert libc.prctl(22, 0, 0, 0, 0) == 0",
    "io_uring": f"{NATIVE}assert libc.syscall(425, 1, 0) >= 0",
    "x32 open": f"{NATIVE}assert libc.syscall(0x40000002, b'/etc/passwd', 0) >= 0",
    "shared memory": f"{NATIVE}assert libc.syscall(319, b'x', 0) >= 0",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_fails(name):
    printed = programs.run(f"{ESCAPES[name]}\nprint('ESCAPED')")
    assert "ESCAPED" not in printed
    errors = ("Permission", "Import", "ModuleNotFound", "Key", "Attribute", "Assertion", "Runtime")
    assert printed.splitlines()[-1].startswith(tuple(f"{error}Error" for error in errors)) or (
        printed.endswith(programs.CRASHED)
    )


def test_the_way_to_native_code_is_real_and_its_calls_are_refused():
    attempts = "open(b'/etc/passwd', 0)", "socket(2, 1, 0)", "fork()", "kill(libc.getppid(), 9)"
    calls = ", ".join(f"libc.{attempt}" for attempt in attempts)
    assert programs.run(f"{NATIVE}print({calls})") == "-1 -1 -1 -1"


def test_a_program_prints_or_fails_with_its_own_lines():
    assert programs.run("print(6 * 7)") == "42"
    dates = "import datetime as d\nprint(d.datetime.strptime('2020-03-01', '%Y-%m-%d').weekday())"
    assert programs.run(dates) == "6"
    failed = programs.run("print('é')\ndef f(x):\n    return 1 / x\nf(0)")
    lines = [line for line in failed.splitlines() if line.strip(" ~^")]  # markers differ by version
    assert lines == [
        "é",
        "Traceback (most recent call last):",
        '  File "program", line 4, in <module>',
        "    f(0)",
        '  File "program", line 3, in f',
        "    return 1 / x",
        "ZeroDivisionError: division by zero",
    ]
    assert programs.run("x = 1") == programs.run("raise SystemExit(3)") == programs.NOTHING
    assert programs.run("import sys; sys.exit('no such day')") == "no such day"
    assert "SyntaxError" in programs.run("x =") and "null bytes" in programs.run("x = '\0'")


def test_a_program_prints_the_same_in_every_run():
    text = "import random\nprint({'a', 'b', 'c', 'd'}, hash('a'), random.random())"
    assert programs.run(text) == programs.run(text)


def test_the_environment_of_a_program_is_empty(monkeypatch):
    monkeypatch.setenv("AGENTGYM_RETRIEVER_TOKEN", "secret")
    printed = programs.run("import os, sys; print(dict(os.environ), sys.argv, sys.stdin)")
    assert "secret" not in printed and printed.endswith("['program'] None")


def test_limits_on_output_and_memory_hold():
    long = programs.run("while True: print('a' * 1000)")
    assert len(long) < programs.OUTPUT_BYTES + 200 and long.endswith(programs.CUT)
    for greedy in ("x = [0] * 10**9", "x = b'a' * 10**9", "x = []\nwhile True: x = [x] * 10**5"):
        assert "MemoryError" in programs.run(greedy)


@pytest.mark.slow
def test_a_program_that_waits_is_stopped(monkeypatch):
    monkeypatch.setattr(programs, "CLOCK_SECONDS", CLOCK_SECONDS)
    asleep = "import time\nprint('before')\ntime.sleep(1000)"
    assert programs.run(asleep) == f"before\n{programs.STOPPED}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "endless",
    [
        "while True: pass",
        "x = 10 ** 10 ** 10",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "import signal\nfor n in range(1, 64):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except Exception: pass\nwhile True: pass",
        "import re; re.match('(a+)+$', 'a' * 50 + 'b')",
    ],
)
def test_an_endless_program_is_stopped(endless):
    assert programs.run(endless).endswith(programs.STOPPED)


def test_no_process_and_no_file_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files, others = len(os.listdir("/proc/self/fd")), psutil.Process().children()
    for text in ("print(1)", "1 / 0", "while True: print('a' * 1000)"):
        programs.run(text)
    with contextlib.suppress(EnvironmentFault):  # a slow machine starts no process by then
        monkeypatch.setattr(programs, "CLOCK_SECONDS", 0.5)
        programs.run("import time; time.sleep(1000)")
    assert not list(tmp_path.iterdir())
    assert not set(psutil.Process().children()) - set(others)
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_program_ends_with_the_process_that_started_it():
    code = (
        "from agentgym_envs.searchqa import programs\n"
        "programs.CLOCK_SECONDS = 1000\n"
        "programs.run('import time; time.sleep(1000)')"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        until(lambda: psutil.Process(parent.pid).children(), "the start of the program")
        (child,) = psutil.Process(parent.pid).children()
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not child.is_running() or child.status() == "zombie", "the end of the program")


@pytest.mark.parametrize(
    ("line", "other", "told"),
    [
        ("CALLS[platform.machine()]", "CALLS['s390x']", "cannot be confined: KeyError: 's390x'"),
        ("restrict(int(sys.argv[1]))", "pass", "printed 'listdir"),
        ("byref(program)", "byref(ctypes.c_int(0))", "cannot be confined: OSError"),
    ],
)
def test_a_machine_that_cannot_confine_programs_is_refused(
    line, other, told, tmp_path, monkeypatch
):
    source = pathlib.Path(program_child.__file__).read_text(encoding="utf-8")
    assert source.count(line) == 1
    child = tmp_path / "child.py"
    child.write_text(source.replace(line, other), encoding="utf-8")
    monkeypatch.setattr(programs, "_CHILD", child)
    with pytest.raises(SetupError, match=f"cannot confine programs.*{told}"):
        programs.check()


@pytest.mark.parametrize("end", ["97", "1", "-1"])
def test_a_program_cannot_pass_for_a_failure_of_the_simulator(end):
    text = f"import os, sys\nos.write(1, b'cannot be confined')\nos._exit({end})"
    assert programs.run(text) == "cannot be confined"


def test_a_program_that_cannot_be_started_is_a_failure_of_the_simulator(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(EnvironmentFault, match="cannot be started"):
        programs.run("print(1)")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    for package in ("Stemmer", "tantivy"):
        pytest.importorskip(package, reason='engines need: pip install -e ".[search]"')
    folder = tmp_path_factory.mktemp("programs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(folder / "data"))
        options = topics.options(folder)
        yield {on: make_served_environment(**options, python=on) for on in (False, True)}


COMPUTE = "<think>I add.</think>\n<python>\n    x = 40\n    print(x + 2)\n</python>"


@pytest.mark.parametrize("is_compat", [False, True])
def test_the_option_adds_a_tool_to_an_episode(served, is_compat):
    made = served[True]
    environment = (made.compat_factory if is_compat else made.factory)()
    first = environment.reset(3).observation
    assert ("<python>" in first) == is_compat and first.endswith("code word of topic 3?")
    result = environment.step(COMPUTE)
    assert (result.observation, result.reward, result.done) == ("<output>42</output>", 0, False)
    assert environment.detail()["is_well_formed"]
    assert environment.state()["programs"] == [{"program": "x = 40\nprint(x + 2)", "output": "42"}]
    assert environment.step("<answer>code 3</answer>").reward == 1
    assert made.spec.version.endswith("-python")
    assert "one search, one program or one answer" in made.spec.instructions
    assert any("<python>" in action for action in made_actions(made))


def made_actions(made):
    environment = made.factory()
    environment.reset(3)
    return environment.valid_actions()


def test_without_the_option_a_program_is_no_action(served):
    made = served[False]
    environment = made.factory()
    environment.reset(3)
    assert environment.step(COMPUTE).observation == texts.INVALID
    assert "python" not in made.spec.instructions + made.spec.version
    assert not any("<python>" in action for action in made_actions(made))
