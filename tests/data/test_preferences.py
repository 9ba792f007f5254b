import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_jax.data.conversations import Conversation, read_conversations
from agentgym_jax.data.preferences import pair_up, read_preferences
from agentgym_jax.text.chat import Message

OPTIONS = dict(measure="reward", threshold=0.7, gap=0.1, unrated=None, pairs_per_task=1, seed=0)


def episode(answer, reward, item_id="babyai_1", first="a door", **fields):
    messages = (Message("user", first), Message("assistant", answer, loss=True))
    return Conversation(item_id, messages, reward, **fields)


def pairs(conversations, **changes):
    return pair_up(conversations, **{**OPTIONS, **changes})[0]


def answers(made):
    return [(p.chosen.messages[-1].content, p.rejected.messages[-1].content) for p in made]


def test_pairs_use_the_best_episode_of_a_task_where_agentgym_uses_the_worst():
    """Checks that the best episode of a task is chosen.

    AgentGym keeps only the worst "expert" episode and the worst policy episode of a task. If the
    best reward is 1.0 and that "expert" episode has 0.6, AgentGym makes no pair.
    """
    episodes = [episode("good", 0.9), episode("poor", 0.6), episode("best", 1.0), episode("bad", 0)]
    assert answers(pairs(episodes)) == [("best", "bad")]
    assert answers(pairs(episodes[:3], threshold=0.95)) == [("best", "poor")]


def test_pairs_match_a_hand_computed_example():
    episodes = [episode("a", 1.0), episode("b", 0.9), episode("c", 0.2), episode("d", 0.0)]
    # The first pair has the largest gap; the next pairs use episodes that are not in a pair yet.
    assert answers(pairs(episodes, pairs_per_task=2)) == [("a", "d"), ("b", "c")]
    made = answers(pairs(episodes, pairs_per_task=9, gap=0.1))
    assert sorted(made) == [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")]
    assert answers(pairs(episodes, pairs_per_task=9, gap=0.95)) == [("a", "d")]


def test_the_gap_is_exact_despite_floating_point_rounding():
    assert 1.0 - 0.9 < 0.1
    assert answers(pairs([episode("a", 1.0), episode("b", 0.9)])) == [("a", "b")]
    assert not pairs([episode("a", 1.0), episode("b", 0.91)])


def test_an_episode_whose_environment_failed_is_left_out():
    failed = [episode("a", 1.0, is_valid=False), episode("c", 0.0, is_valid=False)]
    made, statistics = pair_up([*failed, episode("b", 1.0)], **OPTIONS)
    assert made == [] and statistics.invalid == 2
    assert answers(pairs([*failed, episode("b", 1.0), episode("d", 0.5)])) == [("b", "d")]


def test_episodes_of_different_tasks_or_prompts_are_never_paired():
    assert not pairs([episode("a", 1.0), episode("b", 0.0, item_id="babyai_2")])
    assert not pairs([episode("a", 1.0), episode("b", 0.0, first="another door")])
    assert pairs([episode("a", 1.0, item_id="lmrlgym_maze_3"), episode("b", 0.0, item_id="maze_3")])


def test_omitted_episodes_and_tasks_are_counted():
    made, statistics = pair_up(
        [
            episode("a", 1.0),
            episode("a", 1.0),
            episode("b", 0.0),
            episode("c", None),
            Conversation("babyai_1", (Message("user", "x"), Message("assistant", "ok")), 1.0),
            episode("d", 1.0, item_id="babyai_2"),
        ],
        **OPTIONS,
    )
    assert (statistics.copies, statistics.unrated, statistics.silent) == (1, 1, 1)
    assert (statistics.tasks, statistics.tasks_without_pair, statistics.pairs) == (2, 1, 1)


def test_demonstrations_without_a_reward_can_be_given_one():
    episodes = [episode("expert", None), episode("own", 0.3)]
    assert not pairs(episodes)
    assert answers(pairs(episodes, unrated=1.0)) == [("expert", "own")]


@pytest.mark.parametrize("measure", ["score", "success"])
def test_episodes_can_be_compared_by_score_or_success(measure):
    better = {"score": dict(score=1.0), "success": dict(success=True)}[measure]
    worse = {"score": dict(score=0.1), "success": dict(success=False)}[measure]
    episodes = [episode("a", 0.0, **better), episode("b", 9.0, **worse)]
    assert answers(pairs(episodes, measure=measure)) == [("a", "b")]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=20),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_pairs_keep_their_invariants_for_any_order_of_episodes(drawn, most, rng):
    episodes = [
        episode(f"answer {i}", reward / 4, item_id=f"babyai_{task}")
        for i, (task, reward) in enumerate(drawn)
    ]
    made = pairs(episodes, pairs_per_task=most)
    shuffled = list(episodes)
    rng.shuffle(shuffled)
    assert pairs(shuffled, pairs_per_task=most) == made
    assert len({answer for answer in answers(made)}) == len(made)
    for pair in made:
        assert pair.chosen.item_id == pair.rejected.item_id
        assert pair.chosen.reward >= 0.7 and pair.rejected.reward <= pair.chosen.reward - 0.1
        assert sum(p.chosen.item_id == pair.chosen.item_id for p in made) <= most
    for task in range(4):
        alone = [e for e in episodes if e.item_id == f"babyai_{task}"]
        assert pairs(alone, pairs_per_task=most) == [
            p for p in made if p.chosen.item_id == f"babyai_{task}"
        ]


def test_the_seed_decides_between_equal_episodes():
    episodes = [episode(f"good {i}", 1.0) for i in range(9)] + [episode("bad", 0.0)]
    assert len({answers(pairs(episodes, seed=seed))[0] for seed in range(9)}) > 1


def test_pairs_are_made_from_the_records_of_a_run(tmp_path, caplog):
    turns = [{"from": "human", "value": "a door", "loss": None}]
    records = [
        {
            "item_id": "sciworld_4",
            "conversations": [*turns, {"from": "gpt", "value": outcome, "loss": True}],
            "reward": reward,
            "score": score,
            "score_scale": 0.01,
            "success": int(outcome == "success"),
            "outcome": outcome,
        }
        for outcome, reward, score in (
            ("success", 100.0, 100.0),
            ("env_error", 0.0, 0.0),
            ("failure", 30.0, 30.0),
        )
    ]
    random.Random(0).shuffle(records)
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "config.json").write_text("{}")
    text = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "trajectories" / "step_000001.jsonl").write_text(text)
    # Files of held-out tasks are in the same folder, but no pair may contain their episodes.
    (tmp_path / "trajectories" / "eval_000001.jsonl").write_text(text.replace("door", "gate"))
    read = read_conversations(tmp_path, bad="fatal")
    assert len(read) == 3 and sum(c.is_valid for c in read) == 2
    assert answers(pairs(read, measure="score", pairs_per_task=9)) == [("success", "failure")]
    assert not caplog.text
    alone = read_conversations(tmp_path / "trajectories", bad="fatal")  # such as exported traces
    assert alone == read
    assert "trajectories: 1 files are left out, because eval_* names episodes" in caplog.text
    assert "eval_000001.jsonl" in caplog.text
    with pytest.raises(FileNotFoundError, match="held-out"):
        (tmp_path / "trajectories" / "step_000001.jsonl").unlink()
        read_conversations(tmp_path, bad="fatal")


def turn(speaker, value, loss):
    return {"from": speaker, "value": value, "loss": loss}


ROW = {
    "id": 7,
    "prompt": [
        turn("human", "rules", None),
        turn("gpt", "ok", False),
        turn("human", "a door", None),
    ],
    "chosen": [turn("gpt", "left", True)],
    "rejected": [turn("gpt", "right", True), turn("human", "no", None), turn("gpt", "x", True)],
}


def test_a_file_of_pairs_is_read(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps([ROW, ROW | {"item_id": "babyai_7", "chosen_reward": 1}]))
    first, second = read_preferences(path, bad="fatal")
    assert first.chosen.messages == (
        Message("user", "rules"),
        Message("assistant", "ok"),
        Message("user", "a door"),
        Message("assistant", "left", loss=True),
    )
    assert len(first.rejected.messages) == 6
    assert (first.chosen.item_id, second.chosen.item_id) == ("7", "babyai_7")
    assert (second.chosen.reward, second.rejected.reward) == (1.0, None)


BAD = [
    (7, "expected an object, found int"),
    ({k: v for k, v in ROW.items() if k != "id"}, "field 'item_id' is missing"),
    ({k: v for k, v in ROW.items() if k != "chosen"}, "field 'chosen' is missing"),
    (ROW | {"rejected": "right"}, "field 'rejected' is str, expected list"),
    (ROW | {"chosen": [turn("gpt", 3, True)]}, r"chosen\[0\]: field 'value' is int"),
    (ROW | {"chosen": [turn("human", "left", None)]}, "chosen: roles are"),
    (ROW | {"chosen": [turn("gpt", "left", False)]}, "chosen: no turn has 'loss' true"),
    (ROW | {"rejected": ROW["chosen"]}, "chosen and rejected are the same"),
    (ROW | {"chosen_reward": "1"}, "field 'chosen_reward' is '1'"),
    (
        {
            "id": 7,
            "chosen": [turn("human", "a", None), turn("gpt", "left", True)],
            "rejected": [turn("human", "b", None), turn("gpt", "left", True)],
        },
        "must answer the same prompt",
    ),
]


@pytest.mark.parametrize(("row", "reason"), BAD)
def test_the_error_for_a_bad_pair_names_file_line_and_field(row, reason, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in (ROW, row)))
    with pytest.raises(ValueError, match=f"pairs.jsonl, line 2: .*{reason}"):
        read_preferences(path, bad="fatal")
    assert len(read_preferences(path, bad="skip")) == 1
