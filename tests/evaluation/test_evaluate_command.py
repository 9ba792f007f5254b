"""The evaluation command as a user starts it."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from tests.fake_server import DROP, serving
from tests.run_python import run_python

ROOT = pathlib.Path(__file__).parents[2]


def evaluate(workdir, model, *arguments):
    flags = [f"--workdir={workdir}", f"--model={model}", *arguments]
    flags.append("--config.env_server.transport=inprocess")
    return run_python("-m", "agentgym_jax.evaluate", *flags, JAX_PLATFORMS="cpu")


SUITE = "--config=configs/eval/suite.py:limit=2,environments=textcraft+babyai"


@pytest.mark.slow
def test_the_command_evaluates_the_expert_and_reuses_finished_results(tmp_path):
    first = evaluate(tmp_path / "e", "expert", SUITE, "--environments=textcraft")
    assert first.returncode == 0, first.stderr
    assert "evaluated in part: textcraft depth 1, 2 of 31" in (first.stdout)
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


@pytest.mark.slow
def test_the_error_line_hides_secrets(tmp_path):
    refused = evaluate(tmp_path, "expert", SUITE, "--environments=http://me:hunter2@host")
    assert refused.returncode == 1
    assert "the config has no 'http://<hidden>@host'" in refused.stderr
    assert "hunter2" not in refused.stderr


@contextlib.contextmanager
def silent_endpoint():
    """Yields the URL of an endpoint that never answers a chat, and an event set by the first one."""
    asked, released = threading.Event(), threading.Event()

    def answer(request):
        if request.method == "GET":
            return 200, {"data": [{"id": "silent"}]}
        asked.set()
        released.wait()
        return DROP

    with serving(answer) as server:
        yield server.url, asked
        released.set()


@pytest.mark.slow
def test_sigterm_ends_an_evaluation_whose_endpoint_never_answers(tmp_path):
    with silent_endpoint() as (url, asked):
        command = [sys.executable, "-m", "agentgym_jax.evaluate", f"--workdir={tmp_path / 'e'}"]
        command += [f"--model={url}", SUITE, "--environments=textcraft"]
        process = subprocess.Popen(
            [
                *command,
                "--config.env_server.transport=inprocess",
                "--config.endpoint.timeout_s=1e6",
            ],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stderr=subprocess.PIPE,
            text=True,
        )
        asked.wait()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()  # if the process hangs, pytest's time limit ends the test
    assert process.returncode == 143
    assert "run the same command to resume" in errors
