"""The command-line flags of the entry points, as users set them."""

import pathlib
import subprocess
import sys

import pytest

from agentgym_jax.api import USER_ERRORS
from agentgym_jax.telemetry.guards import GuardStop

ROOT = pathlib.Path(__file__).parent.parent


def run(*arguments, config="configs/quickstart.py", module="train"):
    command = [sys.executable, "-m", f"agentgym_jax.{module}", f"--config={config}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_package_lists_its_commands_without_importing_jax():
    program = (
        "import sys, agentgym_jax.__main__ as m; m.main(sys.argv); assert 'jax' not in sys.modules"
    )
    for arguments, status, words in (
        ([], 0, ["train ", "  evaluate ", "agentgym_jax.COMMAND", "docs/README.md"]),
        (["train"], 1, ["'train'", "python -m agentgym_jax.train."]),
        (["tarin"], 1, ["'tarin'", "python -m agentgym_jax.COMMAND."]),
    ):
        command = [sys.executable, "-m", "agentgym_jax", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == status
        assert all(word in done.stdout + done.stderr for word in words)
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("--config.optimizer.lerning_rate=3", "; did you mean learning_rate?"),
        ("--config.horizonn.turns=3", "; did you mean horizon?"),
        ("--config.zzz=3", ""),
    ],
)
def test_a_misspelled_override_gives_an_error_of_one_line(tmp_path, override, hint):
    done = run(f"--workdir={tmp_path / 'run'}", override)
    assert done.returncode == 1
    name = override.partition("=")[0]
    assert done.stderr.strip() == f"{name}: the config has no such key{hint}"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_exception_in_a_config_file_shows_its_traceback(tmp_path):
    config = tmp_path / "broken.py"
    config.write_text("def get_config():\n    return None.total_steps\n")
    done = run(f"--workdir={tmp_path / 'run'}", "--config.seed=3", config=config)
    assert done.returncode == 1
    assert "NoneType" in done.stderr and "broken.py" in done.stderr


@pytest.mark.slow
def test_even_the_smallest_program_is_cached_for_the_next_start(tmp_path):
    """A start has dozens of small programs, whose compilation takes seconds in total."""
    program = (
        "import sys; from absl import flags; from agentgym_jax import startup; import jax.numpy;"
        "flags.FLAGS(sys.argv); startup.prepare(); jax.numpy.ones(3) + 1"
    )
    command = [sys.executable, "-c", program, f"--compilation_cache={tmp_path}"]
    subprocess.run(command, cwd=ROOT, check=True)
    assert [path.name for path in tmp_path.glob("jit_add-*")]


@pytest.mark.slow
def test_a_user_error_is_shown_without_secrets_or_traceback(tmp_path):
    address = "http://me:hunter2@host"
    done = run(f"--workdir={tmp_path / 'run'}", f"--config.env_server.transport={address}")
    assert done.returncode == 1
    assert "agentgym_jax.train: " in done.stderr and "@host" in done.stderr
    assert "hunter2" not in done.stderr and "Traceback" not in done.stderr


def test_a_stop_by_a_guard_is_reported_like_a_user_error():
    assert GuardStop in USER_ERRORS
