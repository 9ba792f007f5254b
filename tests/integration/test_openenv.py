"""A training run on an environment of the package openenv, served by that package."""

import json
import os
import pathlib
import subprocess

import pytest

from agentgym_jax.runs.run_folder import RunFolder
from tests.run_python import output_of

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parent


@pytest.fixture
def port():
    """Yields the port of the echo server, which runs in another Python."""
    python = os.environ.get("AGENTGYM_OPENENV_PYTHON")
    if not python:
        pytest.skip("AGENTGYM_OPENENV_PYTHON names no Python that has the package openenv")
    command = [python, str(HERE / "openenv_echo.py")]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_run_trains_on_an_environment_of_the_package_openenv(port, tmp_path):
    workdir = tmp_path / "run"
    flags = [f"--config={HERE / 'openenv_config.py'}:{port}", f"--workdir={workdir}"]
    changes = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "envs")]),
        "XLA_FLAGS": "",  # one device, not the eight of the test session
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    output_of("-m", "agentgym_jax.train", *flags, timeout=600, **changes)
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert all(line["policy/grad_norm"] > 0 for line in lines)
    records = RunFolder(workdir).read_trajectories(1) + RunFolder(workdir).read_trajectories(2)
    assert {len(record["turns"]) for record in records} == {2}
    for record in records:
        task = record["item_id"].removeprefix("echo_")
        assert f"task {task}" in json.dumps(record["conversations"])
