"""The command-line flags of the entry points, as users set them."""

import os
import pathlib
import signal
import subprocess
import sys

import jax
import pytest

from agentgym_jax.api import USER_ERRORS, ConfigError, load_config
from agentgym_jax.cli import process_setup
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.telemetry.guards import GuardStop
from tests.run_python import output_of, run_python
from tests.waiting import PATIENCE_S

ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments, config="configs/quickstart.py", module="train"):
    return run_python("-m", f"agentgym_jax.{module}", f"--config={config}", *arguments)


def test_the_package_lists_its_commands_without_importing_jax():
    program = (
        "import sys, agentgym_jax.__main__ as m; m.main(sys.argv); assert 'jax' not in sys.modules"
    )
    for arguments, status, words in (
        ([], 0, ["train ", "  evaluate ", "agentgym_jax.COMMAND", "docs/README.md"]),
        (["train"], 1, ["'train'", "python -m agentgym_jax.train."]),
        (["tarin"], 1, ["'tarin'", "python -m agentgym_jax.COMMAND."]),
    ):
        done = run_python("-m", "agentgym_jax", *arguments)
        assert done.returncode == status
        assert all(word in done.stdout + done.stderr for word in words)
    output_of("-c", program)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("--config.optimizer.lerning_rate=3", "; did you mean 'learning_rate'?"),
        ("--config.horizonn.turns=3", "; did you mean 'horizon'?"),
        ("--config.zzz=3", "."),
    ],
)
def test_a_misspelled_override_gives_an_error_of_one_line(tmp_path, override, hint):
    done = run(f"--workdir={tmp_path / 'run'}", override)
    assert done.returncode == 1
    name = override.partition("=")[0].removesuffix(".turns").removeprefix("--")
    reason = f"agentgym_jax.train: {name}: there is no such key{hint} Known: "
    assert done.stderr.strip().startswith(reason) and done.stderr.strip().count("\n") == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x = 1\ndef get_config(:\n", ", line 2: invalid syntax"),
        ("import os\nimport no_such_package\n", ", line 2: ModuleNotFoundError: No module named"),
        ("def get_config():\n    return None.steps\n", ", line 2: AttributeError: 'NoneType'"),
        ("def get_config():\n    raise ValueError('a\\nb')\n", ", line 2: ValueError: a b"),
        ("x = 1\n", ": it has no function get_config"),
        ("def get_config():\n    pass\n", ": get_config of the config file returned NoneType"),
    ],
)
def test_the_error_of_a_config_file_is_one_line_with_file_and_line(tmp_path, text, error):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert str(refused.value).startswith(f"config={path}{error}")
    assert "\n" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["train", "sweep"])
def test_a_command_shows_the_error_of_a_config_file_without_a_traceback(tmp_path, module):
    config = tmp_path / "broken.py"
    config.write_text("import no_such_package\n")
    done = run(f"--workdir={tmp_path / 'run'}", config=config, module=module)
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1
    assert f"{config}, line 1: ModuleNotFoundError" in done.stderr


@pytest.mark.slow
def test_even_the_smallest_program_is_cached_for_the_next_start(tmp_path):
    """A start has dozens of small programs, whose compilation takes seconds in total."""
    program = (
        "import sys; from absl import flags; from agentgym_jax.cli import command_setup; import jax.numpy;"
        "flags.FLAGS(sys.argv); command_setup.prepare(); jax.numpy.ones(3) + 1"
    )
    output_of("-c", program, f"--compilation_cache={tmp_path}")
    assert [path.name for path in tmp_path.glob("jit_add-*")]


def test_a_cache_that_cannot_be_written_gives_one_warning(tmp_path, caplog):
    (tmp_path / "file").touch()
    before = jax.config.jax_compilation_cache_dir
    process_setup.cache_programs(str(tmp_path / "file" / "cache"))
    assert jax.config.jax_compilation_cache_dir == before
    assert [record.getMessage() for record in caplog.records] == [
        "compiled programs are not kept: give --compilation_cache=FOLDER"
    ]


@pytest.mark.slow
def test_a_user_error_is_shown_without_secrets_or_traceback(tmp_path):
    address = "http://me:hunter2@host"
    done = run(f"--workdir={tmp_path / 'run'}", f"--config.env_server.transport={address}")
    assert done.returncode == 1
    assert "agentgym_jax.train: " in done.stderr and "@host" in done.stderr
    assert "hunter2" not in done.stderr and "Traceback" not in done.stderr


def test_a_stop_by_a_guard_is_reported_like_a_user_error():
    assert GuardStop in USER_ERRORS


# Runs a command, with Ctrl-C when it begins to import JAX.
_INTERRUPTED = """
import runpy, signal, sys
class Finder:
    def find_spec(self, name, *rest):
        if name == "jax":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
runpy.run_module("agentgym_jax.train", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("command", ["train", "export"])
def test_ctrl_c_ends_a_command_that_is_importing_jax_without_a_traceback(command):
    program = _INTERRUPTED.replace("agentgym_jax.train", f"agentgym_jax.{command}")
    done = run_python("-c", program)
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


def test_a_second_ctrl_c_ends_a_command_at_once():
    program = """
import signal
from agentgym_jax.runs import interrupts
interrupts.install()
from agentgym_jax.cli import process_setup
from agentgym_jax.jobs.run import StopFlag
with StopFlag().installed() as stop:
    signal.raise_signal(signal.SIGINT)
    assert stop()
    try:
        signal.raise_signal(signal.SIGINT)
    except BaseException:
        print("an exception, which a callback of JAX could swallow")
"""
    done = run_python("-c", program)
    assert (done.returncode, done.stdout) == (130, "")


@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_closed_terminal_stops_a_command_unless_nohup_protects_it(is_ignored):
    handler = signal.SIG_IGN if is_ignored else signal.SIG_DFL
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with StopFlag().installed() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop() is not is_ignored
            assert is_ignored or stop.exit_status == 129
        assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("target", ["pipe", "/dev/full", "closed"])
def test_output_that_nobody_can_read_ends_no_command(tmp_path, stream, target):
    done = tmp_path / "done"
    program = (
        "import sys, pathlib\n"
        "from absl import logging\n"
        "from agentgym_jax.cli import lasting_output\n"
        "lasting_output.install()\n"
        "assert logging.get_absl_handler().python_handler.stream in (None, sys.stderr)\n"
        f"for _ in range(2000): print('a line', file=sys.{stream}, flush=True)\n"
        f"pathlib.Path({str(done)!r}).touch()\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    if target == "/dev/full":
        os.close(writer)
        writer = os.open(target, os.O_WRONLY)
    command = [sys.executable, "-c", program]
    if target == "closed":
        number = {"stdout": 1, "stderr": 2}[stream]
        command = ["sh", "-c", f'exec "$@" {number}>&-', "sh", *command]
    ended = subprocess.run(command, cwd=ROOT, **{stream: writer}, timeout=PATIENCE_S)
    os.close(writer)
    assert ended.returncode == 0 and done.exists()


def test_a_text_outside_the_encoding_of_the_terminal_is_escaped():
    program = "from agentgym_jax.cli import lasting_output; lasting_output.install(); print('\\u2603 \\udc80')"
    done = run_python("-c", program, PYTHONIOENCODING="ascii:strict")
    assert (done.returncode, done.stdout) == (0, "\\u2603 \\udc80\n")


def test_a_second_ctrl_c_in_a_notebook_is_an_exception():
    with StopFlag().installed():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    "program",
    [
        """
from agentgym_jax.runs.interrupts import StopSignal
stop = StopSignal()
sys.setprofile(lambda *_: signal.raise_signal(signal.SIGTERM))
stop.wait(lambda: None)
""",
        """
from agentgym_jax.jobs.run import StopFlag
with StopFlag().installed() as stop:
    sys.setprofile(lambda *_: signal.raise_signal(signal.SIGTERM))
    signal.raise_signal(signal.SIGTERM)
    sys.setprofile(None)
    assert stop()
""",
        """
from agentgym_sites import __main__ as sites
sites.cluster.Cluster = lambda *_: contextlib.nullcontext(types.SimpleNamespace(urls=[]))
sites._say = lambda text: sys.setprofile(lambda *_: signal.raise_signal(signal.SIGTERM))
sites._start(types.SimpleNamespace(folder="", site=[]))
""",
    ],
    ids=["server", "run", "sites"],
)
def test_a_signal_at_any_point_stops_a_program(program):
    """Sends a signal at each call of the waiting code; a lock of the handler would not be free."""
    program = f"import contextlib, signal, sys, types\n{program}sys.setprofile(None)\n"
    output_of("-c", program, timeout=PATIENCE_S)
