import dataclasses
import json

import numpy as np
import pytest

from agentgym_jax.api import USER_ERRORS
from agentgym_jax.episodes.trajectory import (
    BrokenPolicyError,
    Outcome,
    from_message,
    from_record,
    to_message,
    to_record,
)
from tests.builders import trajectory, turn


def episode(picture, turns=None, **changes):
    fields = dict(item_id="babyai_17", sample=3, step=5, outcome=Outcome.SUCCESS, score=0.5)
    messages = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "go"})
    return trajectory(picture, turns, version=5, **fields | {"messages": messages} | changes)


def test_the_reward_of_a_turn_is_on_its_last_action_token():
    found = episode("paaoao", [turn(1, 3, reward=0.25), turn(4, 5, reward=1.0)])
    np.testing.assert_array_equal(found.token_rewards(), [0, 0, 0.25, 0, 1.0, 0])
    assert found.reward == 1.25


@pytest.mark.parametrize("logprob", [np.nan, -np.inf])
def test_log_probabilities_that_are_no_numbers_are_an_error_of_the_policy(logprob):
    with pytest.raises(BrokenPolicyError, match="babyai_17: .* not finite"):
        to_record(episode("paa", [turn(1, 3)], logprobs=np.float32([0, -1, logprob])))
    assert BrokenPolicyError in USER_ERRORS


def test_turns_in_records_of_older_runs_count_as_not_rejected():
    record = to_record(episode("paa", [turn(1, 3)]))
    del record["turns"][0]["is_rejected"]
    assert not from_record(record).turns[0].is_rejected


def test_a_record_has_the_grammars_of_turns_that_have_one():
    turns = [turn(1, 3), dataclasses.replace(turn(4, 5), grammar='start: "a"')]
    record = json.loads(json.dumps(to_record(episode("paaoa", turns))))
    assert [entry.get("grammar") for entry in record["turns"]] == [None, 'start: "a"']
    assert [found.grammar for found in from_record(record).turns] == ["", 'start: "a"']


def test_the_score_scale_is_recorded_and_1_in_records_of_older_runs():
    record = to_record(episode("paa", [turn(1, 3)], score=83.0, score_scale=0.01))
    assert from_record(record).score_scale == 0.01
    assert from_record(record).score == 83.0
    del record["score_scale"]
    assert from_record(record).score_scale == 1.0


def test_a_judged_episode_keeps_its_score_in_records_and_messages():
    judged = episode("paa", [turn(1, 3)], judge_score=0.25, judge_reason="slow")
    for found in (
        from_record(json.loads(json.dumps(to_record(judged)))),
        from_message(to_message(judged)),
    ):
        assert (found.judge_score, found.judge_reason) == (0.25, "slow")
    older = to_record(episode("paa", [turn(1, 3)]))
    assert not {"judge_score", "judge_reason"} & set(older)
    assert from_record(older).judge_score is None


def test_the_reward_before_a_final_observation_is_on_an_action_token():
    found = episode("paaooo", [turn(1, 3, reward=1.0)])
    assert found.token_rewards()[found.action_mask].sum() == 1.0


def test_the_reward_of_a_turn_without_tokens_is_dropped():
    found = episode("pao", [turn(1, 2, reward=1.0), turn(2, 2, reward=0.5)])
    np.testing.assert_array_equal(found.token_rewards(), [0, 1.0, 0])


@pytest.mark.parametrize("name", ["sources", "logprobs", "policy_versions"])
def test_every_array_has_one_entry_per_token(name):
    good = episode("pao", [turn(1, 2)])
    with pytest.raises(ValueError, match=f"babyai_17: .*'tokens': 3.*'{name}': 2"):
        dataclasses.replace(good, **{name: getattr(good, name)[:2]})


@pytest.mark.parametrize("spans", [[], [(1, 2)], [(1, 4)], [(0, 3)]])
def test_turns_must_cover_exactly_the_action_tokens(spans):
    with pytest.raises(ValueError, match="spans of its turns are not its action tokens"):
        episode("paao", [turn(*span) for span in spans])


def test_only_sampled_tokens_have_a_log_probability():
    with pytest.raises(ValueError, match="not sampled has a log-probability"):
        episode("pao", [turn(1, 2)], logprobs=np.full(3, -1.0, np.float32))


def test_a_record_round_trips_through_json():
    before = episode(
        "paaoa",
        [turn(1, 3, reward=0.5), turn(4, 5, reward=0.0, is_cut=True)],
        outcome=Outcome.ENV_ERROR,
        error="timeout",
        attempts=2,
        seconds=1.5,
    )
    after = from_record(json.loads(json.dumps(to_record(before))))
    for name in ("tokens", "sources", "logprobs", "policy_versions"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
        assert getattr(after, name).dtype == getattr(before, name).dtype
    assert (after.turns, after.messages) == (before.turns, before.messages)
    for name in ("item_id", "sample", "step", "outcome", "score", "success", "error", "attempts"):
        assert getattr(after, name) == getattr(before, name)
    assert after.seconds == before.seconds


def test_a_record_has_the_fields_of_agentgym():
    record = to_record(episode("pa", [turn(1, 2, reward=1.0)]))
    assert record["item_id"] == "babyai_17"
    assert record["reward"] == 1.0
    assert record["conversations"] == [
        {"from": "human", "value": "hi", "loss": None},
        {"from": "gpt", "value": "go", "loss": True},
    ]


def test_environment_errors_and_aborted_episodes_are_invalid():
    invalid = {outcome for outcome in Outcome if not outcome.is_valid}
    truncated = {outcome for outcome in Outcome if outcome.is_truncated}
    assert invalid == {
        Outcome.ENV_ERROR,
        Outcome.PROGRAM_ERROR,
        Outcome.JUDGE_ERROR,
        Outcome.ABORTED,
    }
    assert truncated == {Outcome.HORIZON, Outcome.CONTEXT_FULL}
