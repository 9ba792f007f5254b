"""The flags of the entry points, as their user meets them."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


def run(*arguments, config="configs/quickstart.py", module="train"):
    command = [sys.executable, "-m", f"agentgym_jax.{module}", f"--config={config}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("--config.optimizer.lerning_rate=3", "; did you mean learning_rate?"),
        ("--config.horizonn.turns=3", "; did you mean horizon?"),
        ("--config.zzz=3", ""),
    ],
)
def test_a_misspelled_override_is_answered_with_one_line(tmp_path, override, hint):
    done = run(f"--workdir={tmp_path / 'run'}", override)
    assert done.returncode == 1
    name = override.partition("=")[0]
    assert done.stderr.strip() == f"{name}: the config has no such key{hint}"
    assert not (tmp_path / "run").exists()


def test_a_defect_of_the_config_file_keeps_its_traceback(tmp_path):
    config = tmp_path / "broken.py"
    config.write_text("def get_config():\n    return None.total_steps\n")
    done = run(f"--workdir={tmp_path / 'run'}", "--config.seed=3", config=config)
    assert done.returncode == 1
    assert "NoneType" in done.stderr and "broken.py" in done.stderr


def test_the_smallest_program_is_kept_for_the_next_start(tmp_path):
    """A start makes dozens of them: together they compile for seconds."""
    program = (
        "import sys; from absl import flags; from agentgym_jax import startup; import jax.numpy;"
        "flags.FLAGS(sys.argv); startup.prepare(); jax.numpy.ones(3) + 1"
    )
    command = [sys.executable, "-c", program, f"--compilation_cache={tmp_path}"]
    subprocess.run(command, cwd=ROOT, check=True)
    assert [path.name for path in tmp_path.glob("jit_add-*")]
