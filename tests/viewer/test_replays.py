import json

import pytest

from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.viewer.live import LiveRun
from agentgym_jax.viewer.replays import episode_credits, replay_command
from agentgym_jax.viewer.run_summary import open_run, page_of


@pytest.fixture
def write_replay():
    def write(run, name, episode, credits):
        path = run / "replays" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        turns = [{"turn": n, "credit": credit} for n, credit in enumerate(credits, 1)]
        path.write_text(json.dumps({"episode": episode, "turns": turns}))
        return path

    return write


def test_the_page_gets_the_credits_of_replays_of_every_turn(learning_run, write_replay):
    write_replay(learning_run, "step_000001_0", "step_000001/0", [0.5, -0.25, 0.0])
    write_replay(learning_run, "step_000001_1_turn_2", "step_000001/1", [None])
    folder = RunFolder(learning_run)
    assert episode_credits(folder) == {"step_000001/0": [0.5, -0.25, 0.0]}
    assert page_of(open_run(folder, [], []))["credits"] == episode_credits(folder)


@pytest.mark.parametrize("text", ["{", "[]", '{"episode": "step_000001/0"}', '{"turns": [1]}'])
def test_a_damaged_replay_is_left_out(learning_run, write_replay, text):
    write_replay(learning_run, "a", "step_000001/0", [0.5]).write_text(text)
    write_replay(learning_run, "b", "step_000002/1", [1.0])
    assert episode_credits(RunFolder(learning_run)) == {"step_000002/1": [1.0]}


def test_a_new_replay_changes_the_version_of_the_live_page(learning_run, write_replay):
    live = LiveRun(RunFolder(learning_run), {})
    before = live.version()
    write_replay(learning_run, "a", "step_000001/0", [0.5])
    assert live.version() != before


def test_the_command_names_the_run_but_no_folder_above_the_current_one(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    inside, outside = RunFolder(tmp_path / "here" / "my run"), RunFolder(tmp_path / "there" / "run")
    assert replay_command(inside) == "python -m agentgym_jax.replay 'my run'"
    assert replay_command(outside) == "python -m agentgym_jax.replay run"
