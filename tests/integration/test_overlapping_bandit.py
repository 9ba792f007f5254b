"""Learning with rollouts that overlap."""

import pathlib

import pytest

from agentgym_jax.telemetry.metrics_file import read_metrics
from tests.processes import launch

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_a_bandit_is_learned_from_episodes_of_several_versions(tmp_path):
    workdir = tmp_path / "run"
    overrides = ("--config.rollout.max_off_policy_steps=3", "--noplots_at_end")
    paths = f"{ROOT}:{ROOT / 'envs'}"
    done = launch.train_alone("configs/rl/bandit.py", workdir, *overrides, PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = read_metrics(workdir / "metrics.jsonl")
    first, last = lines[0], lines[-1]
    assert first["eval/success"] < 0.3 and last["eval/success"] > 0.8
    # two turns have the ages 2 and 1
    assert last["policy/off_policy_steps_max"] == 2.0
    assert last["policy/mixed_version_episodes"] == 1.0
