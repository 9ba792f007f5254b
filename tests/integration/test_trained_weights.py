"""The trained weights in the repository reach their stored scores."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from agentgym_jax.evaluation.compare import load_folder

ROOT = pathlib.Path(__file__).parents[2]
WEIGHTS = ROOT / "experiments/2026-11-28_trained_weights"


@pytest.mark.slow
def test_the_stored_policy_of_the_quickstart_reaches_its_scores(tmp_path):
    stored = json.loads((WEIGHTS / "quickstart_scores.json").read_text())
    command = (sys.executable, "-m", "agentgym_jax.evaluate", f"--workdir={tmp_path}")
    config = "--config=configs/eval/held_out.py:of=configs/quickstart.py"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'envs'}", "XLA_FLAGS": ""}
    subprocess.run(
        (*command, config, f"--model={WEIGHTS / 'quickstart'}"),
        cwd=ROOT,
        env=environment,
        check=True,
    )
    result = load_folder(tmp_path)
    # a processor that rounds differently plays other episodes: four standard errors
    assert result.success == pytest.approx(stored["sampled"], abs=0.13)
    assert result.greedy.success == pytest.approx(stored["greedy"], abs=0.13)
