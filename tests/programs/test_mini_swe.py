"""mini-swe-agent as an agent program: its commands run in the sandbox of the episode."""

import os
import pathlib
import subprocess

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.terminals.bubblewrap import Bubblewrap
from agentgym_envs.terminals.environment import TerminalEnvironment
from agentgym_envs.terminals.recipes import recipe_tasks
from tests.other_environment import install
from tests.programs.trainer import trainer
from tests.waiting import PATIENCE_S

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ["mini-swe-agent==2.4.6", "requests"]


def answer(command):
    """Returns an answer in the form of mini-swe-agent's text model."""
    return f"THOUGHT: I try.\n\n```mswea_bash_command\n{command}\n```"


@pytest.mark.slow
def test_its_commands_run_in_the_sandbox_and_its_submission_is_tested(tmp_path):
    sandbox = Bubblewrap()
    try:
        sandbox.check()
    except SetupError as error:
        pytest.skip(str(error))
    python = install(tmp_path / "venv", PACKAGES)
    environment = TerminalEnvironment(recipe_tasks(), sandbox, PATIENCE_S)
    solution = recipe_tasks()[0].solution
    answers = [
        "I forgot the command.",
        answer("cat <<'END' > note.md\n- hostname: `hostname`\nEND\nhostname; exit 3"),
        answer(solution),
        answer("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
    ]
    with trainer(environment, 0, answers) as (task, steps, requests):
        done = subprocess.run(
            [python, "-m", "agentgym_jax.programs.mini_swe"],
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "PYTHONPATH": f"{ROOT}:{ROOT}/envs",
                **task.to_environ(),
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 0, done.stderr
    assert [step.done for step in steps] == [False, False, False, True]
    assert (steps[-1].reward, steps[-1].score) == (1, 1)
    assert recipe_tasks()[0].instruction in requests[0][1]["content"]
    assert "Format error" in requests[1][-1]["content"]
    assert "<returncode>3</returncode>" in requests[2][-1]["content"]
    assert "sandbox" in requests[2][-1]["content"]
    assert not (tmp_path / "note.md").exists()
