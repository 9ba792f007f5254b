"""Leakage: evaluated tasks that were trained on, and the facts by which tasks are recognised."""

import functools
import json

import pytest

from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.evaluation.contamination import (
    describe_leakage,
    find_leakage,
    read_training_data,
)
from agentgym_jax.evaluation.task_identity import item_facts
from tests.builders import episode_score

scored = functools.partial(episode_score, group="all", turns=3)


def trained_on(tmp_path):
    records = [
        {"item_id": "maze_1", "conversations": [], "first_observation": 'say "hi"\n', "tokens": []},
        {"item_id": "lmrlgym_maze_9", "conversations": [], "first_observation": "other"},
    ]
    (tmp_path / "trajectories").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    lines = [json.dumps(r) + "\n" for r in records]
    (tmp_path / "trajectories" / "step_000001.jsonl").write_text("".join(lines))
    (tmp_path / "trajectories" / "eval_000001.jsonl").write_text('{"item_id": "maze_3"}\n')
    turn = {"from": "human", "value": "shown"}
    demo = {"item_id": "maze_8", "conversations": [turn]}
    (tmp_path / "data" / "expert.jsonl").write_text(json.dumps(demo) + "\n")
    return read_training_data(tmp_path)


def test_training_tasks_are_read_from_training_records_only(tmp_path):
    trained = trained_on(tmp_path)
    assert trained.items == {"maze_1", "maze_9", "maze_8"} and trained.episodes == 3
    assert trained.observations == {'say "hi"\n', "other", "shown"}


class Seen:
    """The fields of a trajectory that the leakage check reads."""

    def __init__(self, item_id, text):
        self.item_id, self.first_observation = item_id, text


def conversation(text):
    spoken = ("human", "Rules.", None), ("gpt", "OK.", False), ("human", text, None)
    turns = [*spoken, ("gpt", "Action: up", True)]
    return [{"from": a, "value": b, "loss": c} for a, b, c in turns]


def run_with(folder, **config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_data_files_of_a_config_count_as_training_data(tmp_path):
    rows = [{"item_id": f"maze_{i}", "conversations": conversation(f"text {i}")} for i in (3, 4)]
    (tmp_path / "expert.json").write_text(json.dumps(rows))
    prompt = conversation("text 5")
    sides = {"chosen": prompt[3:], "rejected": [prompt[3] | {"value": "Action: down"}]}
    pair = {"item_id": "maze_5", "prompt": prompt[:3], **sides}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    run = run_with(
        tmp_path / "run",
        sft={"files": [str(tmp_path / "expert.json")]},
        dpo={"preferences": [str(tmp_path / "pairs.jsonl")], "files": ["gone.json"]},
        rollout={"files": ["not data"]},
    )
    trained = read_training_data(run)
    assert trained.items == {"maze_3", "maze_4", "maze_5"} and trained.episodes == 3
    assert trained.observations == {"text 3", "text 4", "text 5"}
    assert len(trained.read) == 2
    (unread,) = trained.unread
    assert unread.startswith("gone.json (no conversations at")
    said = describe_leakage(find_leakage({}, [], [], trained))
    assert said == [f"training data that could not be read may hold more: {unread}"]


def test_data_files_of_a_warm_start_without_steps_do_not_count(tmp_path):
    run = run_with(tmp_path / "run", sft={"files": ["gone.json"], "steps": 0})
    assert not read_training_data(run).unread
    run = run_with(tmp_path / "shown", sft={"files": ["gone.json"], "steps": 1})
    assert read_training_data(run).unread


def test_records_of_an_earlier_training_run_count_once(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "checkpoints").mkdir(parents=True)
    trained_on(before)
    (before / "config.json").write_text(json.dumps({"model": {"source": str(before)}}))
    run_with(after, model={"source": str(before)})
    trained = read_training_data(after)
    assert trained.items == {"maze_1", "maze_9", "maze_8"} and trained.episodes == 3
    assert trained.read == [str(before)] and trained.source == str(after)


def test_a_damaged_config_of_a_run_is_reported(tmp_path):
    trained_on(tmp_path)
    (tmp_path / "config.json").write_text("{")
    trained = read_training_data(tmp_path)
    assert trained.episodes == 3 and "config.json" in trained.unread[0]


def test_leaks_are_counted_by_kind_and_success_without_leaks_is_reported(tmp_path):
    lists = {"maze": [{"data_idx": i, "split": "train" if i == 0 else "test"} for i in range(5)]}
    # the manifest lists all tasks except the last two
    tasks = [Task("maze", i, "all") for i in range(7)]
    items = item_facts(tasks, lists)
    seen = [Seen("maze_1", 'say "hi"\n'), Seen("maze_2", "other"), Seen("maze_3", "new")]
    episodes = [scored(f"maze_{i}", i in (0, 1, 2, 3)) for i in range(7)]
    found = find_leakage(items, seen, episodes, trained_on(tmp_path))
    assert found["train_split"] == {"count": 1, "items": ["maze_0"]}
    assert found["trained"] == {"count": 1, "items": ["maze_1"]}
    assert found["same_observation"] == {"count": 1, "items": ["maze_2"]}
    assert found["unlisted"]["count"] == 2
    # The run has a separate test split, so items without a training record have not leaked.
    assert found["success_without"] == pytest.approx(2 / 5) and found["tasks_without"] == 5
    said = describe_leakage(found)
    assert len(said) == 3 and not any("training split" in text for text in said)
    failed = scored("maze_6", False, outcome=Outcome.ENV_ERROR)
    again = find_leakage(items, seen, [*episodes[:6], failed], trained_on(tmp_path / "2"))
    assert again["tasks_without"] == 4
    clean = find_leakage({"maze_5": items["maze_5"]}, [], episodes[5:6], trained_on(tmp_path / "3"))
    assert clean["success_without"] is None and not describe_leakage(clean)
    unknown = find_leakage(items, [], episodes, None)
    assert unknown["trained"]["count"] == 0 and unknown["source"] is None
    assert unknown["success_without"] == pytest.approx(3 / 6)  # all tasks except maze_0
    assert describe_leakage(unknown)[0].startswith("1 evaluated tasks are of the manifest's train")


def test_items_have_their_short_facts_and_a_digest_of_all_facts():
    rows = [{"data_idx": 3, "split": "test", "goal": "x", "commands": "c" * 100}]
    items = item_facts([Task("textcraft", 3, "g")], {"textcraft": rows})
    row = items["textcraft_3"]
    assert row["facts"] == {"split": "test", "goal": "x"} and row["subtask"] is None
    longer = [{**rows[0], "commands": "d" * 100}]
    other = item_facts([Task("textcraft", 3, "g")], {"textcraft": longer})
    assert other["textcraft_3"]["digest"] != row["digest"]
