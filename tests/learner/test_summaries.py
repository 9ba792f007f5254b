"""Summaries of episodes: all decisions are those of whole episodes, and few episodes are loaded."""

import dataclasses

import jax
import numpy as np
import pytest

from agentgym_jax.episodes import summary
from agentgym_jax.episodes.trajectory import Outcome, Trajectory, to_record
from agentgym_jax.mesh.cluster import pack_value, unpack_value
from agentgym_jax.rl.rl_metrics import _outcome_metrics
from agentgym_jax.rl.update_step import age_metrics
from tests.builders import trajectory, turn
from tests.learner.learner_parts import experience_of, pack_all

GROUP = 4


def episode(number):
    """Returns an episode with turns of all kinds; its observations repeat within its task."""
    rng = np.random.default_rng(number)
    turns = [
        turn(
            1 + 3 * i,
            3 + 3 * i,
            action=None if rng.random() < 0.2 else "go",
            observation=str(rng.choice(["", "a room", "a door", "a key"])),
            reward=float(rng.random()),
            is_rejected=bool(rng.random() < 0.2),
            shows_state=bool(rng.random() < 0.8),
        )
        for i in range(rng.integers(1, 5))
    ]
    made = trajectory(
        "p" + "aao" * len(turns),
        turns,
        item_id=f"babyai_{number // GROUP}",
        outcome=Outcome(str(rng.choice(["success", "failure", "horizon", "env_error"]))),
        first_observation=None if number == 3 else str(rng.choice(["a room", "a key"])),
        error="gone" if number == 2 else "",
        judge_score=0.25 if number == 5 else None,
    )
    versions = np.where(made.action_mask, rng.integers(0, 3), -1).astype(np.int32)
    logprobs = np.where(made.action_mask, -rng.random(made.num_tokens), 0).astype(np.float32)
    return dataclasses.replace(made, policy_versions=versions, logprobs=logprobs)


@pytest.fixture
def whole():
    return [episode(i) for i in range(12)]


@pytest.fixture
def loaded():
    """Returns the list of the indices of loaded episodes."""
    return []


@pytest.fixture
def summaries(whole, loaded):
    def load(i):
        loaded.append(i)
        return whole[i]

    return summary.decode(unpack_value(pack_value(summary.encode(whole))), load)


def make(episodes, name):
    return experience_of(episodes, name, GROUP, reward="turn", failed_turn_penalty=0.1)


@pytest.mark.parametrize("name", ["grpo", "gigpo"])
def test_advantages_and_metrics_of_summaries_are_those_of_whole_episodes(
    whole, summaries, loaded, name
):
    found, expected = make(summaries, name), make(whole, name)
    for field in ("advantage_BT", "informative_B", "counted_B"):
        np.testing.assert_array_equal(getattr(found, field), getattr(expected, field))
    jax.tree.map(np.testing.assert_array_equal, found.episodes, expected.episodes)
    assert _outcome_metrics(summaries) == _outcome_metrics(whole)
    assert age_metrics(summaries, 5) == age_metrics(whole, 5)
    assert [(t.error, t.judge_score) for t in summaries] == [
        (t.error, t.judge_score) for t in whole
    ]
    assert not loaded


def test_a_process_loads_the_episodes_of_its_rows_and_packs_the_same_batch(
    whole, summaries, loaded
):
    def packed(episodes, own_rows=None):
        return pack_all(make(episodes, "grpo"), rows_multiple=4, own_rows=own_rows)

    expected, own_rows = packed(whole), np.array([True, False, False, True])
    found = packed(summaries, own_rows)
    is_own = np.tile(own_rows, len(expected.tokens) // 4)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[is_own], y[is_own]), found, expected)
    for name in ("action_mask", "weights", "advantages", "sequence_ids", "positions"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert 0 < len(loaded) == len(set(loaded)) < len(whole)


def test_what_a_summary_lacks_is_never_read_by_mistake(whole, summaries):
    with pytest.raises(AttributeError, match="is not part of the summary"):
        to_record(summaries[0])
    assert to_record(summaries[0].load()) == to_record(whole[0])
    names = {field.name for field in dataclasses.fields(Trajectory)}
    for name in names - vars(summaries[0]).keys():
        with pytest.raises(AttributeError, match=f"{name} is not part of the summary"):
            getattr(summaries[0], name)
