"""A run folder in Python."""

import importlib
import json

import numpy as np
import pytest

from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.evaluation.scores import write_scores
from agentgym_jax.viewer.loaded_run import load_run
from tests.builders import episode_score


def test_metrics_are_arrays_with_one_value_per_step(learning_run):
    metrics = load_run(learning_run).metrics
    assert list(metrics)[:2] == ["step", "time"]
    np.testing.assert_array_equal(metrics["step"], [1, 2])
    np.testing.assert_array_equal(metrics["rollout/success"], [0.0, 0.5])


def test_a_metric_is_nan_at_steps_without_it(make_run):
    run = make_run({}, {1: {"policy/entropy": 0.5}, 2: {"rollout/success": 1.0}})
    metrics = load_run(run).metrics
    np.testing.assert_array_equal(metrics["policy/entropy"], [0.5, np.nan])
    np.testing.assert_array_equal(metrics["rollout/success"], [np.nan, 1.0])


def test_episodes_are_those_of_the_newest_step_unless_a_step_is_given(learning_run):
    run = load_run(learning_run)
    assert run.trajectory_steps() == [1, 2] and run.trajectory_steps("eval") == [0, 2]
    newest = run.trajectories()
    assert all(isinstance(episode, Trajectory) for episode in newest)
    assert [episode.outcome for episode in newest] == [Outcome.SUCCESS, Outcome.FAILURE]
    assert {episode.outcome for episode in run.trajectories(step=1)} == {Outcome.HORIZON}
    assert [r["item_id"] for r in run.records(kind="eval")] == ["babyai_64"]


def test_the_episodes_of_an_evaluation_are_read_without_a_kind(make_run, make_record):
    run = load_run(make_run({"eval_000000": [make_record()]}))
    assert len(run.trajectories()) == 1


def test_a_run_without_episodes_names_its_folder(make_run):
    run = load_run(make_run({}, {1: {"policy/entropy": 0.5}}))
    with pytest.raises(FileNotFoundError, match=r"trajectories has no files eval_\*.jsonl"):
        run.records()


def test_the_frame_of_episodes_has_one_row_per_episode(learning_run):
    frame = load_run(learning_run).trajectories_frame()
    assert frame[["step", "kind"]].value_counts().to_dict() == {
        (0, "eval"): 1,
        (1, "step"): 2,
        (2, "step"): 2,
        (2, "eval"): 1,
    }
    assert frame.groupby("kind")["success"].sum().to_dict() == {"eval": 1, "step": 1}
    first = frame.iloc[1]
    assert first["environment"] == "babyai" and first["goal"] == "open the red door"
    assert first["turns"] == 3 and first["tokens"] > first["action_tokens"] > 0


def test_the_frame_of_metrics_has_one_row_per_step(learning_run):
    frame = load_run(learning_run).metrics_frame()
    assert frame["rollout/success"].to_dict() == {1: 0.0, 2: 0.5}


def test_the_error_for_missing_pandas_is_one_line_with_the_remedy(learning_run, monkeypatch):
    original = importlib.import_module

    def without_pandas(name):
        if name == "pandas":
            raise ImportError(name)
        return original(name)

    monkeypatch.setattr(importlib, "import_module", without_pandas)
    with pytest.raises(ImportError, match=r'pandas.*: pip install -e "\.\[notebook\]"') as refused:
        load_run(learning_run).trajectories_frame()
    assert "\n" not in str(refused.value)


def test_the_scores_of_a_run_have_intervals_and_groups(learning_run):
    run = load_run(learning_run)
    with pytest.raises(FileNotFoundError):
        _ = run.scores
    decoding = {"mode": "sampled", "max_turns": {"babyai": 5}}
    episodes = [episode_score(item, item < 3, group=f"depth {item % 2}") for item in range(4)]
    kept = dict(model="m", manifests={})
    write_scores(learning_run / "scores.json", episodes, decoding=decoding, **kept)
    assert run.scores.success == 0.75 and run.scores.greedy is None
    low, high = run.scores.success_interval
    assert 0 < low < 0.75 < high < 1
    assert run.scores.groups["depth 1"]["success"] == 0.5
    assert run.scores.frame()["tasks"].to_dict() == {"depth 0": 2, "depth 1": 2, "all": 4}
    assert repr(run.scores).startswith("Result(m: success 75.0 %")
    greedy = dict(decoding=decoding | {"mode": "greedy"}, **kept)
    write_scores(learning_run / "scores_greedy.json", episodes[:2], **greedy)
    assert run.scores.success == 0.75 and run.scores.greedy.success == 1.0


def test_figures_and_the_page_are_written(learning_run, tmp_path):
    run = load_run(learning_run)
    assert run.plots()["summary"].read_bytes().startswith(b"\x89PNG")
    assert run.report() == learning_run / "report.html" and run.report().exists()
    assert run.report(tmp_path / "page.html") == tmp_path / "page.html"


def test_the_config_is_that_of_the_folder(learning_run):
    expected = json.loads((learning_run / "config.json").read_text())
    assert load_run(str(learning_run)).config == expected


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        load_run(tmp_path)
