"""Demonstrations: recorded episodes of the scripted agents."""

import json

import pytest

from agentgym_envs import demonstrations
from agentgym_envs.__main__ import main
from agentgym_envs.textcraft.served import make_served_environment


@pytest.fixture(scope="module")
def textcraft():
    return make_served_environment()


def play(served, indices, **changes):
    options = {
        "agent": "expert",
        "epsilon": 0.5,
        "seed": 0,
        "max_turns": 30,
        "to_text": demonstrations.plain_text,
        **changes,
    }
    return list(demonstrations.record(served, indices, **options))


def test_an_expert_episode_has_the_format_of_agentgym(textcraft):
    (record,) = play(textcraft, [0])
    assert record == {
        "item_id": "textcraft_0",
        "conversations": [
            {
                "from": "human",
                "value": "Crafting commands:\ncraft 4 acacia planks using 1 acacia logs\n\n"
                "Goal: craft acacia planks.",
                "loss": None,
            },
            {
                "from": "gpt",
                "value": "Action:\nget 1 acacia logs",
                "loss": True,
                "chosen_by": "expert",
            },
            {"from": "human", "value": "Got 1 acacia logs", "loss": None},
            {
                "from": "gpt",
                "value": "Action:\ncraft 4 acacia planks using 1 acacia logs",
                "loss": True,
                "chosen_by": "expert",
            },
        ],
        "reward": 1.0,
        "success": 1,
        "agent": "expert",
    }


def test_a_record_depends_only_on_its_task_and_the_seed(textcraft):
    alone = play(textcraft, [125], agent="random")
    among_others = play(textcraft, [3, 125, 7], agent="random")
    assert alone[0] == among_others[1]
    assert alone != play(textcraft, [125], agent="random", seed=1)


def test_a_mixed_agent_records_who_chose_each_action(textcraft):
    records = play(textcraft, range(125, 145), agent="mixed", epsilon=0.3)
    chosen = [
        turn["chosen_by"] for r in records for turn in r["conversations"] if turn["from"] == "gpt"
    ]
    assert 0.15 < chosen.count("random") / len(chosen) < 0.45
    assert set(chosen) == {"random", "expert"}


def test_only_the_experts_actions_of_a_mixed_agent_have_loss(textcraft):
    records = play(textcraft, range(125, 165), agent="mixed", epsilon=0.5)
    turns = [t for r in records for t in r["conversations"] if t["from"] == "gpt"]
    assert all(t["loss"] == (t["chosen_by"] == "expert") for t in turns)
    refusals = ("Could not", "Wrong item format")
    answers = [t["value"] for r in records for t in r["conversations"] if t["from"] == "human"]
    assert any(answer.startswith(refusals) for answer in answers)


def test_rejected_actions_of_the_random_agent_have_no_loss(textcraft):
    refusals = ("Could not", "Wrong item format")
    for epsilon in (0.0, 0.5):
        records = play(textcraft, range(125, 165), agent="random", epsilon=epsilon)
        turns = [t for r in records for t in r["conversations"]]
        pairs = list(zip(turns[1::2], turns[2::2], strict=False))
        refused = [turn for turn, answer in pairs if answer["value"].startswith(refusals)]
        assert bool(refused) == (epsilon > 0)
        assert not any(turn["loss"] for turn in refused)
        taught = sum(bool(turn["loss"]) for turn in turns[1::2]) / len(turns[1::2])
        assert abs(taught - (1 - epsilon)) < 0.1


@pytest.mark.parametrize(("epsilon", "same_as"), [(0.0, "expert"), (1.0, "random")])
def test_a_mixed_agent_with_epsilon_0_or_1_has_one_source_of_actions(textcraft, epsilon, same_as):
    records = play(textcraft, [200], agent="mixed", epsilon=epsilon)
    turns = [turn for turn in records[0]["conversations"] if turn["from"] == "gpt"]
    assert {turn["chosen_by"] for turn in turns} == {same_as}


def test_an_episode_is_truncated_after_max_turns(textcraft):
    (record,) = play(textcraft, [543], max_turns=3)
    assert len(record["conversations"]) == 6
    assert (record["reward"], record["success"]) == (0.0, 0)


def test_a_thought_precedes_the_action():
    thought, action = demonstrations.thoughtful_text("get 1 stick").split("\n\nAction:\n")
    assert thought.startswith("Thought:\n")
    assert action == "get 1 stick"


@pytest.mark.parametrize(
    "text",
    [
        '[{"item_id": "textcraft_5"}, {"item_id": "textcraft_12", "conversations": null}]',
        '["textcraft_5", 12]',
        "textcraft_5\n12\n",
        "5 textcraft_12",
    ],
)
def test_task_lists_can_have_several_formats(text):
    assert demonstrations.read_indices(text, "textcraft") == [5, 12]


@pytest.mark.parametrize("text", ["babyai_5", "textcraft_x", "-1", '[{"id": 5}]', "5.5"])
def test_a_task_of_another_environment_is_refused(text):
    with pytest.raises(ValueError, match="is not a task of textcraft"):
        demonstrations.read_indices(text, "textcraft")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the list of tasks is empty; expected ids such as babyai_17"),
        (b"\xef\xbb\xbf\r\n", "the list of tasks is empty"),
        (b"[]", "the list of tasks is empty"),
        (b'["babyai_1",', "the list of tasks is no JSON: "),
        (b"[" * 100_000, "the list of tasks is no JSON: "),
    ],
)
def test_a_list_without_tasks_gives_one_line_and_no_file(tmp_path, capfd, content, expected):
    listed, out = tmp_path / "tasks", tmp_path / "demos.jsonl"
    listed.write_bytes(content)
    assert main(["demonstrations", "babyai", "--tasks-file", str(listed), "--out", str(out)]) == 1
    error = capfd.readouterr().err
    assert expected in error and error.count("\n") == 1
    assert not out.exists()


def test_a_folder_in_place_of_the_file_is_refused_before_the_first_episode(tmp_path, capfd):
    assert main(["demonstrations", "babyai", "--tasks", "1", "--out", str(tmp_path)]) == 1
    expected = f"agentgym_envs: {tmp_path}: Is a directory; expected a file; choose another path\n"
    assert capfd.readouterr().err == expected


def test_the_command_writes_one_line_per_episode(tmp_path):
    listed, out = tmp_path / "tasks.json", tmp_path / "demos.jsonl"
    listed.write_text('[{"item_id": "babyai_0"}, {"item_id": "babyai_41"}]')
    command = ["demonstrations", "babyai", "--tasks-file", str(listed), "--out", str(out)]
    assert main(command) == 0
    records = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [record["item_id"] for record in records] == ["babyai_0", "babyai_41"]
    assert all(record["success"] for record in records)
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--tasks", "544"], "textcraft has tasks 0 .. 543; 544"),
        (["--tasks", "babyai_1"], '"babyai_1" is not a task of textcraft'),
        (["--tasks", "1", "--epsilon", "2"], "--epsilon must be in 0..1"),
        (["--tasks", "1", "--max-turns", "0"], "--max-turns at least 1"),
        (["--tasks-file", "no/such/file"], "no/such/file"),
    ],
)
def test_an_invalid_command_gives_an_error_and_writes_no_file(tmp_path, capsys, options, complaint):
    out = tmp_path / "demos.jsonl"
    assert main(["demonstrations", "textcraft", "--out", str(out), *options]) == 1
    assert complaint in capsys.readouterr().err
    assert not out.exists()
