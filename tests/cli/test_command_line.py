"""Help, version, keys and shell completion of the commands, as users ask for them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import agentgym_jax
from agentgym_jax.cli.scripts import __dict__ as scripts
from tests.config.test_bad_inputs import FORKS

ROOT = pathlib.Path(__file__).parents[2]
COMMANDS = [name for name in scripts if callable(scripts[name]) and hasattr(scripts[name], "func")]
CALLS = [
    *([name, "--help"] for name in COMMANDS),
    ["train", "--config=configs/rl/bandit.py:smoke", "--keys"],
    ["train", "--list"],
    ["train", "--version"],
    ["train", "--completion=bash"],
    ["view"],
]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answers():
    """Returns the output and exit status of each of CALLS."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "100"},
        input=json.dumps(CALLS),
        capture_output=True,
        text=True,
        check=True,
    )
    parts = done.stdout.split("\nSTATUS ")
    outputs = [parts[0], *(part.partition("\n")[2] for part in parts[1:])]
    statuses = [int(part.partition("\n")[0]) for part in parts[1:]]
    return {
        tuple(call): (output, status)
        for call, output, status in zip(CALLS, outputs, statuses, strict=False)
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_screen_and_shows_examples_and_no_flags_of_libraries(answers, name):
    text, status = answers[name, "--help"]
    lines = text.strip().splitlines()
    assert status == 0 and len(lines) < 45 and all(len(line) <= 100 for line in lines)
    assert f"  python -m agentgym_jax.{name} " in text
    assert text.index("\nFlags:") < text.index("\nFlags of every command:")
    assert "verbosity" not in text and "chex" not in text


def test_the_help_of_train_tells_how_to_list_configs_algorithms_and_keys(answers):
    text, _ = answers["train", "--help"]
    assert "--list " in text and "# configs and algorithms" in text
    assert "--keys " in text and "docs/config.md" in text
    assert "--config=..." in text and "Required." in text


def test_keys_are_listed_as_they_are_typed(answers):
    text, status = answers["train", "--config=configs/rl/bandit.py:smoke", "--keys"]
    lines = text.split()
    assert status == 0 and "--config.algorithm.name=grpo" in lines
    assert "--config.checkpoint.every=45" in lines


def test_the_list_has_configs_and_algorithms(answers):
    text, status = answers["train", "--list"]
    assert status == 0 and "configs/quickstart.py" in text and "gigpo" in text


def test_the_version_is_that_of_the_package(answers):
    assert answers["train", "--version"] == (f"agentgym-train {agentgym_jax.__version__}\n", 0)


def test_a_wrong_call_gives_one_line(answers):
    text, status = answers[("view",)]
    assert status == 1 and len(text.strip().splitlines()) == 1 and "--help" in text


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("--wo", {"--workdir="}),
        ("--config=configs/rl/ban", {"configs/rl/bandit.py"}),
        ("--config=setup.p", {"setup.py"}),
        ("--workdir=agentgym_jax/alg", {"agentgym_jax/algorithms"}),
    ],
)
def test_bash_completes_flags_configs_and_paths(answers, tmp_path, typed, found):
    script, status = answers["train", "--completion=bash"]
    assert status == 0
    (tmp_path / "script.sh").write_text(
        f"{script}\nCOMP_LINE='agentgym-train {typed}'\nCOMP_POINT=${{#COMP_LINE}}\n"
        "_agentgym_train\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    command = ["bash", str(tmp_path / "script.sh")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == found
