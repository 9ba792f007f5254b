"""The command as a user gives it."""

import contextlib
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

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


@contextlib.contextmanager
def silent_endpoint():
    """A chat endpoint that names its model and never answers a conversation."""
    asked, released = threading.Event(), threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"data": [{"id": "silent"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            asked.set()
            released.wait()

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        released.set()
        server.shutdown()


def test_sigterm_ends_an_evaluation_whose_endpoint_never_answers(tmp_path):
    with silent_endpoint() as (url, asked):
        command = [sys.executable, "-m", "agentgym_jax.evaluate", f"--workdir={tmp_path / 'e'}"]
        command += [f"--model={url}", "--compilation_cache=", SUITE, "--environments=textcraft"]
        process = subprocess.Popen(
            [*command, "--config.env.transport=inprocess", "--config.endpoint.timeout_s=1e6"],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stderr=subprocess.PIPE,
            text=True,
        )
        asked.wait()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()  # pytest's limit ends the test if this hangs
    assert process.returncode == 143
    assert "run the same command to resume" in errors
