import json
import math
import os
import resource

import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.telemetry import metrics
from agentgym_jax.telemetry.metrics import lookup
from agentgym_jax.telemetry.metrics_file import MetricWriter, read_metrics


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_time(path):
    return [{k: v for k, v in line.items() if k != "time"} for line in lines(path)]


def test_every_entry_of_the_table_has_a_meaning_and_a_unit():
    for name, metric in metrics.METRICS.items():
        assert metric.description and metric.unit, name
        if name.endswith("_s"):
            assert metric.unit == "seconds" or metric.unit.endswith("/s"), name


def test_a_metric_of_a_group_has_the_entry_of_its_pattern():
    assert lookup("eval/success/babyai GoTo") is metrics.METRICS["eval/success/<group>"]
    assert lookup("eval/success").unit == "fraction"


def test_a_metric_of_one_environment_has_the_unit_of_the_pooled_one():
    for name in metrics.PER_ENVIRONMENT:
        own = lookup(metrics.add_environment(name, "babyai"))
        assert own.unit == metrics.METRICS[name].unit
        assert own.description.startswith(metrics.METRICS[name].description)
    assert metrics.add_environment("rollout/success", "babyai") == "rollout/babyai/success"


@pytest.mark.parametrize(
    "name, nearest",
    [
        ("rollout/babyai/sucess", "rollout/<environment>/success"),
        ("rollout//success", "rollout/success"),
        ("rollout/<environment>/success", "rollout/<environment>/success"),
        ("rollout/sucess", "rollout/success"),
        ("policy/kl", "policy/kl_k3"),
        ("eval/success/<group>", "eval/success"),
        ("eval/success/", "eval/success"),
        ("policy/loss/babyai", "policy/loss"),
    ],
)
def test_the_error_for_an_unknown_metric_suggests_the_nearest_name(name, nearest):
    with pytest.raises(ValueError, match=nearest):
        lookup(name)


@pytest.mark.parametrize(
    "value", [0.5, np.float32(0.5), np.full((1,), 0.5), jnp.float32(0.5), jnp.bfloat16(0.5)]
)
def test_scalars_of_every_library_become_plain_floats(tmp_path, value):
    with MetricWriter(tmp_path / "metrics.jsonl") as writer:
        assert writer.write(1, {"policy/loss": value}) == {"policy/loss": 0.5}
    assert lines(tmp_path / "metrics.jsonl")[0]["policy/loss"] == 0.5


@pytest.mark.parametrize("value", [np.zeros(2), "0.5", None, [1.0, 2.0]])
def test_a_value_that_is_not_one_number_is_refused_and_nothing_is_written(tmp_path, value):
    path = tmp_path / "metrics.jsonl"
    with MetricWriter(path) as writer:
        with pytest.raises(ValueError, match="policy/loss"):
            writer.write(1, {"policy/loss": value})
    assert path.read_text() == ""


def test_values_that_are_not_finite_become_null_and_are_counted(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricWriter(path) as writer:
        writer.write(1, {"policy/loss": math.nan, "policy/entropy": -math.inf, "eval/success": 1})
    assert without_time(path) == [
        {
            "step": 1,
            "policy/loss": None,
            "policy/entropy": None,
            "eval/success": 1.0,
            "run/nonfinite_metrics": 2.0,
        }
    ]
    assert math.isnan(read_metrics(path)[0]["policy/loss"])


def test_a_step_cannot_be_written_twice(tmp_path):
    with MetricWriter(tmp_path / "metrics.jsonl") as writer:
        writer.write(4, {})
        with pytest.raises(ValueError, match="step 4 after step 4"):
            writer.write(4, {})
    with MetricWriter(tmp_path / "metrics.jsonl") as writer:
        with pytest.raises(ValueError, match="step 3 after step 4"):
            writer.write(3, {})


def test_a_resumed_file_equals_an_uninterrupted_one(tmp_path):
    def run(path, steps, resume_from=None):
        writer = MetricWriter(path)
        if resume_from is not None:
            writer.truncate_after(resume_from)
        for step in steps:
            writer.write(step, {"rollout/success": step / 10, "time/iteration_s": 2.0})
        writer.sync()
        return writer

    run(tmp_path / "through", range(1, 9)).close()
    # this run is never closed; its last checkpoint has step 4
    run(tmp_path / "killed", range(1, 7))
    run(tmp_path / "killed", range(5, 9), resume_from=4).close()
    assert without_time(tmp_path / "killed") == without_time(tmp_path / "through")


@pytest.mark.parametrize("cut", range(1, 40))
def test_an_incomplete_last_line_is_repaired_when_the_file_is_opened(tmp_path, cut):
    path = tmp_path / "metrics.jsonl"
    whole = '{"step": 1, "time": 1.0}\n'
    path.write_bytes((whole + '{"step": 2, "time": 2.0, "eval/success/ä": 0.25}\n').encode()[:-cut])
    assert read_metrics(path) == [{"step": 1, "time": 1.0}]
    with MetricWriter(path) as writer:
        assert writer.last_step == 1
        writer.write(2, {})
    assert [line["step"] for line in lines(path)] == [1, 2]


def test_a_line_that_does_not_fit_on_the_disk_is_an_error(tmp_path):
    path = tmp_path / "metrics.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MetricWriter(path) as writer:
        writer.write(1, {"policy/loss": 0.5})
        try:
            limit = os.path.getsize(path) + 20  # only a part of the next line fits
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            with pytest.raises(RunFolderError, match="metrics.jsonl: File too large.*ulimit"):
                writer.write(2, {"policy/loss": 0.25})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        with pytest.raises(ValueError, match="closed"):
            writer.write(2, {"policy/loss": 0.25})
    assert os.path.getsize(path) == limit  # no line was written after the failure
    assert [line["step"] for line in read_metrics(path)] == [1]
    with MetricWriter(path) as writer:
        writer.write(2, {"policy/loss": 0.25})
    assert [line["policy/loss"] for line in read_metrics(path)] == [0.5, 0.25]


def test_a_damaged_line_in_the_middle_is_an_error_and_stays_in_the_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    text = '{"step": 1}\n{"step": \n{"step": 3}\n'
    path.write_text(text)
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        read_metrics(path)
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        MetricWriter(path)
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["step", "time", "policy/loss"])
def test_a_number_beyond_the_floats_is_an_error_that_names_the_line(tmp_path, name):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({"step": 1, name: 10**400}) + "\n")
    with pytest.raises(ValueError, match="line 1 .*too large"):
        read_metrics(path)


def test_truncating_before_the_first_step_empties_the_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricWriter(path) as writer:
        writer.write(1, {})
        writer.truncate_after(0)
        assert writer.last_step is None
        assert path.read_text() == ""
        writer.write(1, {})
    assert len(lines(path)) == 1


def test_writing_to_a_closed_writer_is_an_error(tmp_path):
    writer = MetricWriter(tmp_path / "metrics.jsonl")
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer.write(1, {})


def test_the_error_for_a_missing_file_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="metrics.jsonl does not exist"):
        read_metrics(tmp_path / "metrics.jsonl")
