"""Damaged files of a run folder: one line that names the file, and no change."""

import json

import pytest

from agentgym_jax.api import USER_ERRORS
from agentgym_jax.episodes.trajectory import to_record
from agentgym_jax.runs.json_lines import DamagedFileError
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.metrics_file import MetricWriter, read_metrics
from agentgym_jax.viewer.report import read_run
from tests.builders import trajectory

GOOD = json.dumps(to_record(trajectory("pao"))).encode()
METRICS = b'{"step": 1, "policy/loss": 0.5}\n{"step": 2, "policy/loss": null}\n'


def read_episodes(folder):
    return folder.read_episodes(1)


def read_page(folder):
    return read_run(folder.path)


def read_values(folder):
    return read_metrics(folder.metrics_path)


def open_writer(folder):
    return MetricWriter(folder.metrics_path)


def check_refused(tmp_path, name, data, read, words):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    with pytest.raises(DamagedFileError) as caught:
        read(RunFolder(tmp_path))
    message = str(caught.value)
    assert str(path) in message and words in message and "\n" not in message
    assert path.read_bytes() == data
    assert isinstance(caught.value, USER_ERRORS)


@pytest.mark.parametrize("read", [read_episodes, read_page])
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (GOOD[:-9], "is not JSON"),
        (b"\xff" + GOOD, "is not JSON"),
        (b"", "is not JSON"),
        (GOOD.replace(b'"turns"', b'"rounds"'), "is no record of this version (KeyError('turns'))"),
        (b"[]", "is no record of this version"),
    ],
    ids=["cut", "no UTF-8", "empty", "other field", "list"],
)
def test_a_damaged_episode_is_named_with_its_line(tmp_path, read, bad, words):
    name, data = "trajectories/step_000001.jsonl", GOOD + b"\n" + bad + b"\n"
    check_refused(tmp_path, name, data, read, f"line 2 {words}")


@pytest.mark.parametrize("read", [read_values, open_writer])
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b'{"step": 3, "polic', "line 3 is not JSON"),
        (b'\xff{"step": 3}', "line 3 is not JSON"),
        (b'{"stp": 3}', "line 3 is no record of this version"),
        (b'{"step": true}', "line 3 is no record of this version"),
        (b'{"step": 3, "policy/loss": "low"}', "policy/loss is no number"),
        (b'{"step": 2}', "line 3 has step 2 after step 2"),
    ],
)
def test_a_damaged_line_of_metrics_is_named(tmp_path, read, bad, words):
    check_refused(tmp_path, "metrics.jsonl", METRICS + bad + b"\n", read, words)


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"time": 3}'])
def test_a_damaged_provenance_is_named(tmp_path, data):
    check_refused(tmp_path, "provenance.json", data, RunFolder.provenance, "restore it")
