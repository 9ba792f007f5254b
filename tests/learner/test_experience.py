"""From episodes to rewards and advantages."""

import dataclasses

import numpy as np
import pytest

from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.learner.experience import (
    make_experience,
    pack_experience,
    token_rewards,
    turn_anchors,
)
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


def make(episodes, name="grpo", group_size=None, **changes):
    options = dict(
        algorithm=ALGORITHMS[name],
        group_size=group_size or len(episodes),
        max_tokens=16,
        reward="success",
        wasted_turn_penalty=0.0,
        truncation="fail",
        advantage_options=ALGORITHMS[name].defaults["advantage"],
    )
    return make_experience(episodes, **(options | changes))


def shown(turns, *texts, **options):
    """An episode that was shown these texts, the first before its first turn."""
    made = episode(turns, **options)
    seen = tuple(
        dataclasses.replace(turn, observation=text)
        for turn, text in zip(made.turns, texts[1:], strict=True)
    )
    messages = ({"role": "system", "content": "rules"}, {"role": "user", "content": texts[0]})
    return dataclasses.replace(made, turns=seen, messages=messages)


def test_an_unreadable_turn_costs_more_than_a_refused_one():
    found = token_rewards(
        episode("rud"),
        reward="success",
        wasted_turn_penalty=0.25,
        unreadable_turn_penalty=0.5,
    )
    np.testing.assert_allclose(found[[2, 5, 8]], [-0.25, -0.75, 0.0])


def test_what_the_length_costs_is_taken_off_at_the_end():
    overlong = dict(kind="turns", limit=4, margin=2, penalty=0.5)
    found = token_rewards(
        episode("ddd", success=True), reward="success", wasted_turn_penalty=0.0, overlong=overlong
    )
    np.testing.assert_allclose(found[[2, 5, 8]], [0.0, 0.0, 0.75])


def test_equal_texts_of_one_task_are_one_state():
    episodes = [
        shown("dd", "hall", "kitchen", "end"),
        shown("ddd", "hall", "hall", "kitchen", "end"),
        shown("d", "hall", "end"),
        shown("d", "hall", "end"),
    ]
    (hall, kitchen), second, (other,), again = turn_anchors(episodes, group_size=2)
    assert second == [hall, hall, kitchen] and again == [other]
    assert len({hall, kitchen, other}) == 3


def test_a_wasted_turn_stays_in_its_state():
    episodes = [shown("rud", "hall", "No.", "", "kitchen"), shown("d", "hall", "kitchen")]
    assert turn_anchors(episodes, group_size=2) == [[0, 0, 0], [0]]


def test_an_answer_that_shows_no_state_is_no_state():
    """BabyAI says "No change in state." in every room: turns after it are not in one state."""
    stuck = shown("dd", "hall", "No change in state.", "kitchen")
    first = dataclasses.replace(stuck.turns[0], shows_state=False)
    stuck = dataclasses.replace(stuck, turns=(first, stuck.turns[1]))
    assert turn_anchors([stuck, shown("d", "hall", "kitchen")], group_size=2) == [[0, 0], [0]]


def solved_after(turns):
    """An episode that looks round, all from one hall, and then solves its task."""
    return shown("d" * turns, "hall", *[f"view {turns} {i}" for i in range(turns)], success=True)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("grpo", dict(turn_discount=0.9), True),
        ("gigpo", {}, True),
        ("grpo", {}, False),
        ("reinforce_pp_baseline", {}, False),
    ],
)
def test_a_group_teaches_if_it_has_an_advantage_however_equal_its_returns_are(
    name, options, expected
):
    """All four are solved, in 1, 2, 3 and 4 turns; the other group is solved half of the time."""
    others = [episode("d", success=i % 2 == 0) for i in range(4)]
    found = make(
        [*map(solved_after, (1, 2, 3, 4)), *others],
        name,
        group_size=4,
        zero_variance="filter",
        advantage_options=ALGORITHMS[name].defaults["advantage"] | options,
    )
    np.testing.assert_array_equal(found.informative_B, [expected] * 4 + [True] * 4)
    np.testing.assert_array_equal(found.counted_B, found.informative_B)
    counts = found.statistics
    assert (counts.informative, counts.zero_variance) == (1 + expected, 1 - expected)


def test_gigpo_gets_the_states_of_the_episodes():
    """Both solve it; the first wasted a turn in the hall, so its first action is the worse one."""
    found = make(
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
    kept = make(episodes, group_size=2)
    filtered = make(episodes, group_size=2, zero_variance="filter")
    np.testing.assert_array_equal(kept.advantage_BT, filtered.advantage_BT)
    np.testing.assert_array_equal(kept.counted_B, [True] * 4)
    np.testing.assert_array_equal(filtered.counted_B, [True, True, False, False])
    resampled = make(episodes, group_size=2, zero_variance="resample")
    np.testing.assert_array_equal(resampled.counted_B, filtered.counted_B)

    def weights(experience, keep_zero_advantage):
        batch = pack_experience(
            experience,
            np.arange(4),
            aggregation_options=dict(mode="token_mean"),
            row_length=16,
            row_halvings=0,
            rows_multiple=1,
            keep_zero_advantage=keep_zero_advantage,
        )
        return np.unique(batch.weights[batch.action_mask])

    # 2 + 2 + 4 + 4 action tokens; the second group has no gradient but is part of the mean
    np.testing.assert_allclose(weights(kept, False), [1 / 12])
    np.testing.assert_allclose(weights(filtered, False), [1 / 4])
    np.testing.assert_allclose(weights(filtered, True), [1 / 4])


def test_groups_are_informative_by_the_reward_that_is_trained_on():
    episodes = [episode("d"), episode("u"), episode("d", success=True), episode("r", success=True)]
    for wasted, expected in ((0.0, [False] * 4), (0.1, [True] * 4)):
        found = make(episodes, group_size=2, wasted_turn_penalty=wasted)
        np.testing.assert_array_equal(found.informative_B, expected)


def test_a_divergence_in_the_reward_is_charged_token_by_token():
    episodes = [
        dataclasses.replace(e, logprobs=np.where(e.sources == 2, -1.0, 0.0).astype(np.float32))
        for e in (episode("d", success=True), episode("d"))
    ]
    reference = [np.array([0, -1.5, -1.0, 0]), np.array([0, -1.0, -0.5, 0])]
    found = make(episodes, kl_coef=0.1, reference_logprobs=reference)
    expected = [[0, -0.05, 1.0, 0], [0, 0, 0.05, 0]]
    np.testing.assert_allclose(found.reward_BT[:, :4], expected, atol=1e-7)
    assert found.reference_divergence == pytest.approx((0.5 - 0.5) / 4)
    assert found.mean_returns == {"babyai": pytest.approx((0.95 + 0.05) / 2)}


def test_reinforce_subtracts_what_was_expected():
    episodes = [episode("d", success=True), episode("d")]
    found = make(episodes, "reinforce", expected_returns={"babyai": 0.25})
    np.testing.assert_allclose(found.advantage_BT[:, 1], [0.75, -0.25])
    assert found.statistics.informative == 1


def test_each_environment_has_a_baseline_and_a_mean_return():
    other = dataclasses.replace(episode("d", success=True), item_id="text_craft_3")
    found = make([episode("d"), other], "reinforce", expected_returns={"babyai": 0.25})
    np.testing.assert_allclose(found.advantage_BT[:, 1], [-0.25, 1.0])
    assert found.mean_returns == {"babyai": 0.0, "text_craft": 1.0}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_success_is_worth_more_than_a_failure_under_every_algorithm(name):
    episodes = [episode("ddd", success=True), episode("ddd")]
    values = [np.zeros(len(e.tokens), np.float32) for e in episodes]
    found = make(episodes, name, values_after=values)
    assert found.advantage_BT[0, 1] > max(0.0, found.advantage_BT[1, 1])


def test_a_critic_is_asked_before_the_token_that_is_judged():
    made = episode("dd", success=True)
    values = np.arange(len(made.tokens), dtype=np.float32)
    found = make([made], "ppo", values_after=[values])
    np.testing.assert_array_equal(found.value_BT[0, 1 : len(values)], values[:-1])
    # lambda 1: the target is the return, whatever the critic says.
    np.testing.assert_allclose(found.return_BT[0][made.action_mask.nonzero()[0]], 1.0, rtol=1e-6)


def cut(turns, *, shows_next):
    """An episode that its horizon cut; its last token is the last action's unless it shows more."""
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
def test_an_episode_cut_by_its_horizon_may_go_on_with_what_is_expected(
    truncation, shows_next, expected
):
    made = cut("dd", shows_next=shows_next)
    values = np.zeros(len(made.tokens), np.float32)
    values[-1] = 5.0
    found = make([made], "ppo", truncation=truncation, values_after=[values])
    last = made.turns[-1].action_stop - 1
    assert found.return_BT[0, last] == pytest.approx(expected)


@pytest.mark.parametrize("reward", ["score", "success"])
def test_a_running_score_is_not_paid_beside_the_value_that_expects_the_final_one(reward):
    """The critic is right at 0.6 everywhere; the cut episode has a running score of 0.5."""
    made = dataclasses.replace(cut("dd", shows_next=True), score=0.5, success=True)
    values = np.full(len(made.tokens), 0.6, np.float32)
    found = make([made], "ppo", truncation="bootstrap", reward=reward, values_after=[values])
    np.testing.assert_allclose(found.return_BT[0][found.action_mask_BT[0]], 0.6, rtol=1e-6)
    # One that had no room for the next observation is worth what it got.
    full = dataclasses.replace(cut("dd", shows_next=False), score=0.5, success=False)
    found = make([full], "ppo", truncation="bootstrap", reward="score", values_after=[values[:6]])
    assert found.return_BT[0, full.turns[-1].action_stop - 1] == pytest.approx(0.5)


def test_an_episode_that_has_ended_is_worth_nothing_after_its_end():
    made = dataclasses.replace(episode("dd"), outcome=Outcome.FAILURE)
    values = np.full(len(made.tokens), 5.0, np.float32)
    found = make([made], "ppo", truncation="bootstrap", values_after=[values])
    assert found.return_BT[0, made.turns[-1].action_stop - 1] == 0.0


@pytest.mark.parametrize("zero_variance", ["drop", ""])
def test_an_unknown_choice_names_the_known_ones(zero_variance):
    with pytest.raises(ValueError, match="zero_variance.*keep.*filter"):
        make([episode("d")], zero_variance=zero_variance)


def test_a_prompt_longer_than_the_batch_is_left_out_and_harms_nobody():
    endless = dataclasses.replace(
        episode(""),
        outcome=Outcome.CONTEXT_FULL,
        tokens=np.arange(40, dtype=np.int32),
        sources=np.zeros(40, np.int8),
        logprobs=np.zeros(40, np.float32),
        policy_versions=np.full(40, -1, np.int32),
    )
    solved, failed = episode("d", success=True), episode("d")
    with_it = make([endless, solved, failed])
    without = make([solved, failed])
    assert not with_it.valid_B[0]
    np.testing.assert_array_equal(with_it.advantage_BT[1:], without.advantage_BT)
