"""Rewards and advantages of finished episodes."""

import dataclasses

import numpy as np
import pytest

from agentgym_jax.algorithms import ALGORITHMS, losses
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.learner import importance
from agentgym_jax.learner.experience import token_rewards, turn_anchors
from tests.builders import trajectory, turn
from tests.learner.learner_parts import advantage_options, experience_of, pack_all


def episode(turns: str, *, success=False, reward=0.0):
    """Returns an episode whose turns consist of two action tokens and an observation each.

    Each letter of `turns` is one turn: d for done, r for rejected, u for unreadable (a parse
    error).
    """
    return trajectory(
        "p" + "aao" * len(turns),
        [
            turn(
                1 + 3 * i,
                3 + 3 * i,
                action=None if kind == "u" else "go",
                reward=reward,
                is_rejected=kind == "r",
            )
            for i, kind in enumerate(turns)
        ],
        item_id="babyai_3",
        outcome=Outcome.SUCCESS if success else Outcome.HORIZON,
        logprob=0.0,
    )


def advantages(episodes, penalty):
    options = dict(std_normalize=False)
    experience = experience_of(episodes, failed_turn_penalty=penalty, advantage_options=options)
    return experience.advantage_BT[:, 1], int(experience.informative_P.sum())


@pytest.mark.parametrize(
    ("reward", "expected"),
    [("success", [0, -0.25, 0, -0.25, 0, 1]), ("turn", [0, 0.25, 0, 0.25, 0, 0.5])],
)
def test_the_penalty_is_on_the_last_action_token_of_a_failed_turn(reward, expected):
    t = episode("rud", success=True, reward=0.5)
    found = token_rewards(t, reward=reward, failed_turn_penalty=0.25)
    np.testing.assert_allclose(found[[1, 2, 4, 5, 6, 8]], expected)
    assert not found[~t.action_mask].any()


def test_scores_are_rescaled_so_that_the_best_is_one():
    sciworld = dataclasses.replace(episode("d"), score=83.0, score_scale=0.01)
    babyai = dataclasses.replace(episode("d"), score=0.83)
    for t in (sciworld, babyai):
        found = token_rewards(t, reward="score", failed_turn_penalty=0.0)
        np.testing.assert_allclose(found, [0, 0, 0.83, 0], rtol=1e-6)


def test_without_a_penalty_failed_turns_do_not_change_rewards():
    t = episode("rud", success=True)
    plain = dataclasses.replace(t, turns=episode("ddd").turns)
    for reward in ("success", "score", "turn"):
        np.testing.assert_array_equal(
            token_rewards(t, reward=reward, failed_turn_penalty=0.0),
            token_rewards(plain, reward=reward, failed_turn_penalty=0.0),
        )


def test_failed_turn_penalties_distinguish_episodes_of_an_unsolved_group():
    episodes = [episode("ddd"), episode("drd"), episode("rrd"), episode("urd")]
    found, informative = advantages(episodes, 0.0)
    assert not found.any() and informative == 0
    found, informative = advantages(episodes, 0.1)
    np.testing.assert_allclose(found, [0.125, 0.025, -0.075, -0.075], atol=1e-6)
    assert informative == 1


def test_a_success_with_failed_turns_beats_a_failure_without_any():
    found, _ = advantages([episode("rrd", success=True), episode("ddd")], 0.1)
    assert found[0] > found[1]


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_an_episode_with_branches_may_be_longer_than_a_row(name):
    episodes = [episode("ddd", success=True), episode("d")]
    branched = [dataclasses.replace(episodes[0], branch_starts=(4, 7)), episodes[1]]
    wide = experience_of(episodes, name)
    narrow = experience_of(branched, name, max_tokens=4)
    assert narrow.advantage_BT.shape == (2, 12)
    np.testing.assert_allclose(narrow.advantage_BT, wide.advantage_BT[:, :12], atol=1e-6)
    assert pack_all(narrow, row_length=4).tokens.shape == (4, 4)


def test_the_ratio_of_a_sequence_is_that_of_a_branch():
    """Rewards and weights are those of the episode, and every branch has its own ratio."""
    episodes = [episode("ddd", success=True), episode("d")]
    branched = [dataclasses.replace(episodes[0], branch_starts=(4, 7)), episodes[1]]
    batch = pack_all(experience_of(branched), aggregation_options=dict(mode="sequence_mean"))
    number = batch.sequence_ids
    assert number.max() == 3  # three branches and an episode without
    learner = np.where(batch.action_mask, -0.1 * (1 + number), 0.0).astype(np.float32)
    sequence = np.where(batch.action_mask, number, -1)
    factors = importance.sequence_truncated(learner, np.zeros_like(learner), sequence, cap=1.0)
    segments = np.where(batch.action_mask, batch.segment_ids, 0)
    means = np.asarray(losses.sequence_mean(learner, segments))
    for k in range(4):
        own = batch.action_mask & (number == k)  # two tokens
        np.testing.assert_allclose(factors[own], np.exp(-0.2 * (1 + k)), rtol=1e-5)
        np.testing.assert_allclose(means[own], -0.1 * (1 + k), rtol=1e-5)
    # Six tokens of the first episode share its half of the loss.
    weights = [float(batch.weights[number == k].sum()) for k in range(4)]
    np.testing.assert_allclose(sorted(weights), [1 / 6, 1 / 6, 1 / 6, 1 / 2], rtol=1e-5)


def shown(turns, *texts, **options):
    """Returns an episode with these observations; the first one precedes the first turn."""
    made = episode(turns, **options)
    seen = tuple(
        dataclasses.replace(turn, observation=text)
        for turn, text in zip(made.turns, texts[1:], strict=True)
    )
    return dataclasses.replace(made, turns=seen, first_observation=texts[0])


def test_the_state_after_a_summary_is_the_state_before_it():
    acts, summarises = shown("dd", "room", "hall", "end"), shown("ddd", "room", "hall", "", "end")
    assert turn_anchors([acts, summarises], 2) == [[0, 1], [0, 1, 1]]


def test_a_parse_error_costs_more_than_a_rejected_action():
    found = token_rewards(
        episode("rud"),
        reward="success",
        failed_turn_penalty=0.25,
        parse_error_penalty=0.5,
    )
    np.testing.assert_allclose(found[[2, 5, 8]], [-0.25, -0.75, 0.0])


def test_the_length_penalty_is_subtracted_at_the_end():
    overlong = dict(kind="turns", limit=4, margin=2, penalty=0.5)
    found = token_rewards(
        episode("ddd", success=True), reward="success", failed_turn_penalty=0.0, overlong=overlong
    )
    np.testing.assert_allclose(found[[2, 5, 8]], [0.0, 0.0, 0.75])


def test_equal_observations_of_a_task_are_the_same_state():
    episodes = [
        shown("dd", "hall", "kitchen", "end"),
        shown("ddd", "hall", "hall", "kitchen", "end"),
        shown("d", "hall", "end"),
        shown("d", "hall", "end"),
    ]
    assert turn_anchors(episodes, group_size=2) == [[0, 1], [0, 0, 1], [0], [0]]


def test_a_failed_turn_does_not_change_the_state():
    episodes = [shown("rud", "hall", "No.", "", "kitchen"), shown("d", "hall", "kitchen")]
    assert turn_anchors(episodes, group_size=2) == [[0, 0, 0], [0]]


def test_an_answer_that_shows_no_state_is_not_an_anchor_state():
    """Checks that BabyAI's answer "No change in state." is not used as an anchor state.

    The turn after this answer keeps the state of the turn before.
    """
    stuck = shown("dd", "hall", "No change in state.", "kitchen")
    first = dataclasses.replace(stuck.turns[0], shows_state=False)
    stuck = dataclasses.replace(stuck, turns=(first, stuck.turns[1]))
    assert turn_anchors([stuck, shown("d", "hall", "kitchen")], group_size=2) == [[0, 0], [0]]


def solved_after(turns):
    """Returns a solved episode that starts in the hall and has another observation per turn."""
    return shown("d" * turns, "hall", *[f"view {turns} {i}" for i in range(turns)], success=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("grpo", dict(turn_discount=0.9), True),
        ("gigpo", {}, True),
        ("grpo", {}, False),
        ("reinforce_pp_baseline", {}, False),
    ],
)
def test_a_group_is_informative_if_its_advantages_are_not_zero(name, options, expected):
    """Checks which algorithms get advantages from a group whose episodes all solve the task.

    These episodes take 1, 2, 3 and 4 turns. The other group is solved in half of its episodes.
    """
    others = [episode("d", success=i % 2 == 0) for i in range(4)]
    found = experience_of(
        [*map(solved_after, (1, 2, 3, 4)), *others],
        name,
        group_size=4,
        zero_variance="filter",
        advantage_options=advantage_options(name) | options,
    )
    np.testing.assert_array_equal(found.informative_B, [expected] * 4 + [True] * 4)
    np.testing.assert_array_equal(found.counted_B, found.informative_B)
    np.testing.assert_array_equal(found.informative_P, [expected, True])


def test_the_states_of_all_groups_of_a_large_step_count():
    """Checks 20 groups with two states each, more than the 32 token places of a group."""
    found = experience_of([*map(solved_after, (1, 2))] * 20, "gigpo", group_size=2)
    assert found.informative_P.all()
    assert (found.advantage_BT.reshape(20, -1) == found.advantage_BT[:2].reshape(1, -1)).all()


def test_gigpo_uses_the_states_of_the_episodes():
    """Checks GiGPO on two successes, of which the first wastes a turn in the hall.

    The first action of that episode therefore gets the lower advantage.
    """
    found = experience_of(
        [
            shown("rd", "hall", "No.", "end", success=True),
            shown("d", "hall", "end", success=True),
        ],
        "gigpo",
    )
    first, second = found.advantage_BT[:, 1]
    assert first < 0 < second
    np.testing.assert_array_equal(found.advantage_BT[0, 4:6], found.advantage_BT[1, 1:3])


def test_filtered_groups_do_not_count_in_the_denominator():
    episodes = [episode("d", success=True), episode("d"), episode("dd"), episode("dd")]
    kept = experience_of(episodes, group_size=2)
    filtered = experience_of(episodes, group_size=2, zero_variance="filter")
    np.testing.assert_array_equal(kept.advantage_BT, filtered.advantage_BT)
    np.testing.assert_array_equal(kept.counted_B, [True] * 4)
    np.testing.assert_array_equal(filtered.counted_B, [True, True, False, False])
    resampled = experience_of(episodes, group_size=2, zero_variance="resample")
    np.testing.assert_array_equal(resampled.counted_B, filtered.counted_B)

    def weights(experience, keep_zero_advantage):
        batch = pack_all(experience, keep_zero_advantage=keep_zero_advantage)
        return np.unique(batch.weights[batch.action_mask])

    # 2 + 2 + 4 + 4 action tokens; the second group has no gradient, but its tokens count in the
    # mean
    np.testing.assert_allclose(weights(kept, False), [1 / 12])
    np.testing.assert_allclose(weights(filtered, False), [1 / 4])
    np.testing.assert_allclose(weights(filtered, True), [1 / 4])


def test_penalties_can_make_groups_informative():
    episodes = [episode("d"), episode("u"), episode("d", success=True), episode("r", success=True)]
    for penalty, expected in ((0.0, [False] * 4), (0.1, [True] * 4)):
        found = experience_of(episodes, group_size=2, failed_turn_penalty=penalty)
        np.testing.assert_array_equal(found.informative_B, expected)


@pytest.mark.parametrize(("truncation", "is_valid"), [("fail", True), ("mask", False)])
def test_a_truncated_episode_is_a_failure_or_is_masked(truncation, is_valid):
    failed = dataclasses.replace(episode("d"), outcome=Outcome.FAILURE)
    cut = dataclasses.replace(episode("d"), outcome=Outcome.HORIZON)
    found = experience_of([episode("d", success=True), failed, cut], truncation=truncation)
    assert found.episodes.valid_B.tolist() == [True, True, is_valid]
    assert found.advantage_BT[2].any() == is_valid


def test_a_kl_penalty_in_the_reward_is_charged_per_token():
    episodes = [
        dataclasses.replace(e, logprobs=np.where(e.sources == 2, -1.0, 0.0).astype(np.float32))
        for e in (episode("d", success=True), episode("d"))
    ]
    # The reference also scores prompt and observation tokens, which get no penalty.
    reference = [np.array([-3.0, -1.5, -1.0, -2.0]), np.array([-3.0, -1.0, -0.5, -2.0])]
    found = experience_of(episodes, kl_coef=0.1, reference_logprobs=reference)
    expected = [[0, -0.05, 1.0, 0], [0, 0, 0.05, 0]]
    np.testing.assert_allclose(found.episodes.reward_BT[:, :4], expected, atol=1e-7)
    assert found.reference_divergence == pytest.approx((0.5 - 0.5) / 4)
    assert found.mean_returns == {"babyai": pytest.approx((0.95 + 0.05) / 2)}


def test_reinforce_subtracts_the_expected_return():
    episodes = [episode("d", success=True), episode("d")]
    found = experience_of(episodes, "reinforce", expected_returns={"babyai": 0.25})
    np.testing.assert_allclose(found.advantage_BT[:, 1], [0.75, -0.25])
    assert found.informative_P.sum() == 1


def test_each_environment_has_its_own_baseline_and_mean_return():
    other = dataclasses.replace(episode("d", success=True), item_id="text_craft_3")
    found = experience_of([episode("d"), other], "reinforce", expected_returns={"babyai": 0.25})
    np.testing.assert_allclose(found.advantage_BT[:, 1], [-0.25, 1.0])
    assert found.mean_returns == {"babyai": 0.0, "text_craft": 1.0}


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"distill"}))
def test_a_success_is_worth_more_than_a_failure_under_every_algorithm(name):
    episodes = [episode("ddd", success=True), episode("ddd")]
    values = [np.zeros(len(e.tokens), np.float32) for e in episodes]
    found = experience_of(episodes, name, values_after=values)
    assert found.advantage_BT[0, 1] > max(0.0, found.advantage_BT[1, 1])


def test_the_value_of_a_token_is_the_critics_value_before_it():
    made = episode("dd", success=True)
    values = np.arange(len(made.tokens), dtype=np.float32)
    found = experience_of([made], "ppo", values_after=[values])
    np.testing.assert_array_equal(found.episodes.value_BT[0, 1 : len(values)], values[:-1])
    # With lambda 1 the target is the return and does not depend on the critic's values.
    np.testing.assert_allclose(found.return_BT[0][made.action_mask.nonzero()[0]], 1.0, rtol=1e-6)


def cut(turns, *, shows_next):
    """Returns an episode that its horizon truncated.

    Unless `shows_next` is set, the episode ends with an action.
    """
    made = dataclasses.replace(episode(turns), outcome=Outcome.HORIZON)
    if shows_next:
        return made
    end = made.turns[-1].action_stop
    arrays = ("tokens", "sources", "logprobs", "policy_versions")
    return dataclasses.replace(made, **{name: getattr(made, name)[:end] for name in arrays})


@pytest.mark.parametrize(
    ("truncation", "shows_next", "expected"),
    [("bootstrap", True, 5.0), ("bootstrap", False, 0.0), ("fail", True, 0.0)],
)
def test_a_truncated_episode_can_bootstrap_from_the_critic(truncation, shows_next, expected):
    made = cut("dd", shows_next=shows_next)
    values = np.zeros(len(made.tokens), np.float32)
    values[-1] = 5.0
    found = experience_of([made], "ppo", truncation=truncation, values_after=[values])
    last = made.turns[-1].action_stop - 1
    assert found.return_BT[0, last] == pytest.approx(expected)


@pytest.mark.parametrize("reward", ["score", "success"])
def test_a_bootstrapped_value_replaces_the_score_so_far(reward):
    """Checks a truncated episode with the score 0.5 so far; the critic's value is 0.6 everywhere."""
    made = dataclasses.replace(cut("dd", shows_next=True), score=0.5, success=True)
    values = np.full(len(made.tokens), 0.6, np.float32)
    found = experience_of(
        [made], "ppo", truncation="bootstrap", reward=reward, values_after=[values]
    )
    np.testing.assert_allclose(found.return_BT[0][found.episodes.action_mask_BT[0]], 0.6, rtol=1e-6)
    # An episode without space for the next observation keeps its reward.
    full = dataclasses.replace(cut("dd", shows_next=False), score=0.5, success=False)
    found = experience_of(
        [full], "ppo", truncation="bootstrap", reward="score", values_after=[values[:6]]
    )
    assert found.return_BT[0, full.turns[-1].action_stop - 1] == pytest.approx(0.5)


def test_an_ended_episode_is_not_bootstrapped():
    made = dataclasses.replace(episode("dd"), outcome=Outcome.FAILURE)
    values = np.full(len(made.tokens), 5.0, np.float32)
    found = experience_of([made], "ppo", truncation="bootstrap", values_after=[values])
    assert found.return_BT[0, made.turns[-1].action_stop - 1] == 0.0


@pytest.mark.parametrize("zero_variance", ["drop", ""])
def test_the_error_for_an_unknown_option_lists_the_known_ones(zero_variance):
    with pytest.raises(ValueError, match="zero_variance.*keep.*filter"):
        experience_of([episode("d")], zero_variance=zero_variance)


def test_an_oversized_prompt_is_invalid_and_does_not_affect_other_episodes():
    endless = dataclasses.replace(
        episode(""),
        outcome=Outcome.CONTEXT_FULL,
        tokens=np.arange(40, dtype=np.int32),
        sources=np.zeros(40, np.int8),
        logprobs=np.zeros(40, np.float32),
        policy_versions=np.full(40, -1, np.int32),
    )
    solved, failed = episode("d", success=True), episode("d")
    with_it = experience_of([endless, solved, failed])
    without = experience_of([solved, failed])
    assert not with_it.episodes.valid_B[0]
    np.testing.assert_array_equal(with_it.advantage_BT[1:], without.advantage_BT)
