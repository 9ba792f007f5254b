"""Environments of the `verifiers` package as agent programs, and our environments in verifiers.

The checks run in another interpreter, with `verifiers`, `agentgym-envs` and no JAX. The variable
AGENTGYM_VERIFIERS_PYTHON names it.
"""

import json
import os
import pathlib
import subprocess

import pytest

from agentgym_jax.client.actions import ActionFormat, ActionRules, parse_action
from tests.processes import launch

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parent
PYTHON = os.environ.get("AGENTGYM_VERIFIERS_PYTHON", "")
PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "envs", ROOT / "tests", HERE)))
needs_verifiers = pytest.mark.skipif(
    not PYTHON, reason="AGENTGYM_VERIFIERS_PYTHON names no interpreter with verifiers"
)
pytestmark = pytest.mark.slow


def run(check, text=""):
    """Runs a check of in_venv.py; returns its result."""
    environ = {**os.environ, "PYTHONPATH": PATHS}
    command = [PYTHON, str(HERE / "in_venv.py"), check]
    done = subprocess.run(command, env=environ, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@needs_verifiers
def test_the_experts_actions_have_reward_1_in_verifiers():
    assert run("expert") == [1.0, 1.0]


@needs_verifiers
def test_answers_without_an_action_end_an_episode_without_reward():
    assert run("nonsense") == [0.0, 0.0, 4]


@needs_verifiers
def test_an_episode_in_verifiers_ends_at_the_turn_limit():
    assert run("turn_limit") == [0.0, 0.0, 12]


ANSWERS = (
    "Thought: x\nAction: get 1 log",
    "Action:\n\n  craft 1 stick \nmore",
    "Action: a\nAction: b",
    "no marker",
    "Action:",
    "Action: Thought: x",
    "reAction: x",
    "Action: " + "x" * 10_001,
)


@needs_verifiers
@pytest.mark.parametrize("form", ["react", "raw"])
def test_actions_in_verifiers_are_those_of_the_trainer(form):
    rules = ActionRules(ActionFormat(form), max_characters=10_000)
    expected = [parse_action(answer, rules).action or "" for answer in ANSWERS]
    assert any(expected)
    assert run("parse_lines", json.dumps([(answer, form) for answer in ANSWERS])) == expected


@needs_verifiers
def test_threads_share_a_player_and_failed_rollouts_raise():
    rewards, requests, limited, messages = run("player")
    assert rewards == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert requests == 10  # two turns per episode
    assert limited == 1
    assert "five has no reward" in messages[0]
    assert "has examples 0 .. 7" in messages[1]


@needs_verifiers
def test_a_fixed_agent_does_not_sample_from_the_policy():
    assert "agent 'user' is not trained, but sampled from the policy" in run("user_simulator")


CONFIG = """
from configs import common
from tests.integration import tiny
def get_config(arg=None):
    c = tiny.get_config()
    c.horizon = dict(kind="fixed", turns=3)
    c.total_steps = 2
    c.rollout.show_turn_budget = "none"
    c.rollout.tasks_per_step = 2
    c.rollout.group_size = 2
    c.learner.micro_rows = 1
    c.rollout.max_attempts = 1
    c.rollout.max_replacements = 0
    tasks = dict(kind="residues", start=0, stop=2, modulus=1, groups=dict(even=0))
    held = dict(kind="residues", start=7, stop=8, modulus=1, groups=dict(even=0))
    c.environments = dict(even=common.environment(protocol="none", train=tasks, eval=held))
    c.program = dict(command={command!r})
    return c
"""


@needs_verifiers
def test_an_environment_of_verifiers_is_trained(tmp_path):
    command = f"{PYTHON} -m agentgym_jax.programs.verifiers_env"
    command += " --env=even-numbers --harness=agentgym_verifiers"
    path = tmp_path / "config.py"
    path.write_text(CONFIG.format(command=command))
    done = launch.train_alone(path, tmp_path / "run", PYTHONPATH=PATHS)
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "run/trajectories").glob("step_*.jsonl"))
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(files) == 2 and len(records) == 8
    for record in records:
        assert record["success"] == (record["item_id"] == "even_0")
        assert len(record["turns"]) == 2
    metrics = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])
    assert metrics["policy/logprob_gap_max"] < 1e-3
