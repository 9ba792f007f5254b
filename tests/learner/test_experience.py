"""From episodes to rewards and advantages."""

import dataclasses

import numpy as np
import pytest

from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.learner.experience import make_experience, token_rewards
from agentgym_jax.trajectory import Outcome, Trajectory, Turn


def episode(turns: str, *, success=False, reward=0.0):
    """One prompt token, then two action tokens and an observation a turn.

    `turns` has a letter each: d(one), r(efused), u(nreadable).
    """
    sources = np.array([0] + [2, 2, 1] * len(turns), np.int8)
    n = len(sources)
    return Trajectory(
        item_id="babyai_3",
        sample=0,
        step=0,
        outcome=Outcome.SUCCESS if success else Outcome.HORIZON,
        score=0.0,
        success=success,
        tokens=np.arange(n, dtype=np.int32),
        sources=sources,
        logprobs=np.zeros(n, np.float32),
        policy_versions=np.where(sources == 2, 0, -1).astype(np.int32),
        turns=tuple(
            Turn(
                action_start=1 + 3 * i,
                action_stop=3 + 3 * i,
                text="",
                action=None if kind == "u" else "go",
                observation="",
                reward=reward,
                is_cut=False,
                is_refused=kind == "r",
            )
            for i, kind in enumerate(turns)
        ),
        messages=(),
    )


def advantages(episodes, penalty):
    experience = make_experience(
        episodes,
        algorithm=ALGORITHMS["grpo"],
        group_size=len(episodes),
        max_tokens=16,
        reward="success",
        wasted_turn_penalty=penalty,
        truncation="fail",
        advantage_options=dict(std_normalize=False),
    )
    return experience.advantage_BT[:, 1], int(experience.statistics.informative)


@pytest.mark.parametrize(
    ("reward", "expected"),
    [("success", [0, -0.25, 0, -0.25, 0, 1]), ("turn", [0, 0.25, 0, 0.25, 0, 0.5])],
)
def test_the_penalty_sits_on_the_last_action_token_of_a_wasted_turn(reward, expected):
    t = episode("rud", success=True, reward=0.5)
    found = token_rewards(t, reward=reward, wasted_turn_penalty=0.25)
    np.testing.assert_allclose(found[[1, 2, 4, 5, 6, 8]], expected)
    assert not found[~t.action_mask].any()


def test_a_score_is_trained_on_in_the_unit_in_which_one_is_the_best():
    sciworld = dataclasses.replace(episode("d"), score=83.0, score_scale=0.01)
    babyai = dataclasses.replace(episode("d"), score=0.83)
    for t in (sciworld, babyai):
        found = token_rewards(t, reward="score", wasted_turn_penalty=0.0)
        np.testing.assert_allclose(found, [0, 0, 0.83, 0], rtol=1e-6)


def test_without_a_penalty_wasted_turns_count_like_others():
    t = episode("rud", success=True)
    plain = dataclasses.replace(t, turns=episode("ddd").turns)
    for reward in ("success", "score", "turn"):
        np.testing.assert_array_equal(
            token_rewards(t, reward=reward, wasted_turn_penalty=0.0),
            token_rewards(plain, reward=reward, wasted_turn_penalty=0.0),
        )


def test_a_group_that_only_failed_learns_from_its_refusals():
    episodes = [episode("ddd"), episode("drd"), episode("rrd"), episode("urd")]
    found, informative = advantages(episodes, 0.0)
    assert not found.any() and informative == 0
    found, informative = advantages(episodes, 0.1)
    np.testing.assert_allclose(found, [0.125, 0.025, -0.075, -0.075], atol=1e-6)
    assert informative == 1


def test_a_success_with_a_refusal_beats_a_clean_failure():
    found, _ = advantages([episode("rrd", success=True), episode("ddd")], 0.1)
    assert found[0] > found[1]
