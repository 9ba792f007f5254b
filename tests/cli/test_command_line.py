"""Help, version, keys and shell completion of the commands, as users ask for them."""

import re
import subprocess

import pytest

import agentgym_jax
from agentgym_jax.algorithms.table import ALGORITHMS
from agentgym_jax.cli.scripts import __dict__ as scripts
from tests.cli.commands import ROOT, run_all
from tests.run_python import run_python

COMMANDS = [name for name in scripts if callable(scripts[name]) and hasattr(scripts[name], "func")]
CALLS = [
    *([name, "--help"] for name in COMMANDS),
    ["train", "--config=configs/rl/bandit.py:smoke", "--keys"],
    ["train", "--version"],
    ["train", "--completion=bash"],
    ["view"],
]
QUICK = [["train", "--list"], ["results", "--helpshort"], ["export", "--model=qwen9-1b", "--out=x"]]


@pytest.fixture(scope="module")
def answers():
    """Returns the output and exit status of each of CALLS."""
    return dict(zip(map(tuple, CALLS), run_all(CALLS, COLUMNS="100"), strict=True))


@pytest.fixture(scope="module")
def quick():
    """Returns the output and exit status of each of QUICK, by command."""
    found = run_all(QUICK, "import agentgym_jax.cli.startup, agentgym_jax.api")
    return {command: answer for (command, *_), answer in zip(QUICK, found, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_screen_and_shows_examples_and_no_flags_of_libraries(answers, name):
    text, status = answers[name, "--help"]
    lines = text.strip().splitlines()
    assert status == 0 and len(lines) < 45 and all(len(line) <= 100 for line in lines)
    assert f"  python -m agentgym_jax.{name} " in text
    assert text.index("\nFlags:") < text.index("\nFlags of every command:")
    assert "verbosity" not in text and "chex" not in text


@pytest.mark.slow
def test_the_help_of_train_tells_how_to_list_configs_algorithms_and_keys(answers):
    text, _ = answers["train", "--help"]
    assert "--list " in text and "# configs and algorithms" in text
    assert "--keys " in text and "docs/config.md" in text
    assert "--config=..." in text and "Required." in text


@pytest.mark.slow
def test_keys_are_listed_as_they_are_typed(answers):
    text, status = answers["train", "--config=configs/rl/bandit.py:smoke", "--keys"]
    lines = text.split()
    assert status == 0 and "--config.algorithm.name=grpo" in lines
    assert "--config.checkpoint.every=45" in lines


def test_the_list_has_configs_and_algorithms(quick):
    text, status = quick["train"]
    assert status == 0 and "configs/quickstart.py" in text
    assert set(ALGORITHMS) <= set(re.findall(r"\w+", text))


def test_an_export_reports_an_error_in_one_line(quick):
    text, status = quick["export"]
    assert status == 1 and len(text.strip().splitlines()) == 1
    assert text.strip().startswith("agentgym_jax.export: the model qwen9-1b is no existing path")


def test_a_console_script_runs_its_module(quick):
    program = "import sys; from agentgym_jax.cli.scripts import results; results()"
    done = run_python("-c", program, "--helpshort")
    assert "--out" in done.stdout
    assert (done.stdout, done.returncode) == quick["results"]


@pytest.mark.slow
def test_the_version_is_that_of_the_package(answers):
    assert answers["train", "--version"] == (f"agentgym-train {agentgym_jax.__version__}\n", 0)


@pytest.mark.slow
def test_a_wrong_call_gives_one_line(answers):
    text, status = answers[("view",)]
    assert status == 1 and len(text.strip().splitlines()) == 1 and "--help" in text


@pytest.mark.slow
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
