import pytest

from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.learner.episode_selection import Rule, select_episodes
from tests.builders import trajectory, turn


def episode(reward, item_id="babyai_1", outcome=Outcome.SUCCESS, scale=1.0):
    made = [turn(1, 2, reward=reward)]
    return trajectory("pa", made, item_id=item_id, outcome=outcome, score=reward, score_scale=scale)


RULES = {"babyai": Rule("reward", 0.0), "sciworld": Rule("score", 0.99)}


def kept(episodes, rules=RULES, keep_per_task=0, weighting="equal"):
    return select_episodes(episodes, rules, keep_per_task=keep_per_task, weighting=weighting)


def test_every_environment_has_its_own_threshold_and_score_scale():
    episodes = [
        episode(0.3),
        episode(0.0),
        episode(99.0, "sciworld_4", scale=0.01),
        episode(98.0, "sciworld_5", scale=0.01),
        episode(100.0, "sciworld_5", scale=0.01),
    ]
    assert [i for i, _ in kept(episodes)] == [0, 2, 4]


def test_an_episode_whose_environment_failed_is_never_imitated():
    assert (
        kept([episode(1.0, outcome=Outcome.ENV_ERROR), episode(1.0, outcome=Outcome.ABORTED)]) == []
    )


def test_episodes_without_reward_are_never_kept():
    assert kept([episode(0.0), episode(-1.0)], {"babyai": Rule("reward", -5.0)}) == []


def test_the_best_episodes_of_a_task_are_kept_and_ties_go_to_the_first():
    episodes = [episode(0.5), episode(0.9), episode(0.9), episode(0.2, "babyai_2")]
    assert [i for i, _ in kept(episodes, keep_per_task=1)] == [1, 3]
    assert [i for i, _ in kept(episodes, keep_per_task=2)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("weighting", "weights"),
    [
        ("equal", [1.0, 1.0, 1.0]),
        ("reward", [0.6, 0.2, 0.5]),
        # Weights are normalised within a task: 0.6 / 0.8 and 0.2 / 0.8; the only success of a task
        # gets weight 1.
        ("importance", [0.75, 0.25, 1.0]),
    ],
)
def test_weights_match_hand_computed_values(weighting, weights):
    episodes = [episode(0.6), episode(0.0), episode(0.2), episode(0.5, "babyai_2")]
    found = kept(episodes, weighting=weighting)
    assert [i for i, _ in found] == [0, 2, 3]
    assert [w for _, w in found] == pytest.approx(weights)


def test_the_error_for_an_unknown_option_lists_the_known_ones():
    with pytest.raises(ValueError, match="'luck' is none of equal, reward, importance"):
        kept([], weighting="luck")
    with pytest.raises(ValueError, match="'luck' is none of success, score, reward"):
        Rule("luck", 0.0)
