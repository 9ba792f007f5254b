"""The command as a user gives it."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def evaluate(workdir, model, *arguments):
    command = [sys.executable, "-m", "agentgym_jax.evaluate", f"--workdir={workdir}"]
    command += [f"--model={model}", "--compilation_cache=", *arguments]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [*command, "--config.env.transport=inprocess"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


SUITE = "--config=configs/eval/suite.py:limit=2,environments=textcraft+babyai"


def test_the_expert_by_command_and_the_same_again(tmp_path):
    first = evaluate(tmp_path / "e", "expert", SUITE, "--environments=textcraft")
    assert first.returncode == 0, first.stderr
    assert "played in part: textcraft depth 1, 2 of 31" in (first.stdout)
    written = (tmp_path / "e" / "scores.json").read_bytes()
    document = json.loads(written)
    assert document["overall"]["success"] == 1.0 and document["overall"]["tasks"] == 8
    assert (
        list(document["manifests"]) == ["textcraft"] and document["suite"]["overall"]["tasks"] == 8
    )
    assert len((tmp_path / "e/trajectories/eval_000000.jsonl").read_text().splitlines()) == 8

    again = evaluate(tmp_path / "e", "expert", SUITE, "--environments=textcraft")
    assert again.returncode == 0 and "8 of 8 episodes are on disk" in again.stderr
    assert (tmp_path / "e" / "scores.json").read_bytes() == written


def test_the_error_line_hides_secrets(tmp_path):
    refused = evaluate(tmp_path, "expert", SUITE, "--environments=http://me:hunter2@host")
    assert refused.returncode == 1
    assert "the config has no 'http://<hidden>@host'" in refused.stderr
    assert "hunter2" not in refused.stderr
