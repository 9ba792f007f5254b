import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.evaluation import scores, statistics
from agentgym_jax.evaluation.scores import EpisodeScore
from agentgym_jax.telemetry.metrics import lookup
from tests.builders import episode_score, trajectory


def difference(a, b, **options):
    return statistics.paired_difference(scores.successes(a), scores.successes(b), **options)


def test_the_wilson_interval_matches_hand_computed_values():
    # z = 1.959964; the centre is (0.8 + z^2/20) / (1 + z^2/10) = 0.71674, the half width 0.22658
    assert statistics.wilson_interval(8, 10) == pytest.approx((0.49016, 0.94332), abs=1e-5)


def test_the_wilson_interval_without_trials_is_0_to_1():
    assert statistics.wilson_interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_wilson_interval_contains_the_rate_and_stays_between_0_and_1(pair):
    successes, n = pair
    low, high = statistics.wilson_interval(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    mirrored = statistics.wilson_interval(n - successes, n)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high), abs=1e-12)
    wider = statistics.wilson_interval(successes, n, 0.99)
    assert wider[0] <= low and high <= wider[1]


def test_more_successes_than_trials_are_refused():
    with pytest.raises(ValueError, match="11 successes of 10"):
        statistics.wilson_interval(11, 10)


@pytest.mark.parametrize("n, c, k", [(4, 2, 2), (5, 1, 3), (6, 6, 1), (6, 0, 6), (6, 4, 3)])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(n, c, k):
    correct = [True] * c + [False] * (n - c)
    subsets = list(itertools.combinations(correct, k))
    share = sum(any(subset) for subset in subsets) / len(subsets)
    assert statistics.pass_at_k(n, c, k) == pytest.approx(share)


def test_pass_at_k_needs_k_samples():
    with pytest.raises(ValueError, match="at least k samples"):
        statistics.pass_at_k(3, 1, 4)


def test_the_summary_of_two_groups_matches_hand_computed_values():
    results = [
        episode_score(0, True, turns=2),
        episode_score(1, False, turns=6),
        episode_score(2, True, group="deep", turns=10),
    ]
    summary = scores.summarise(results)
    overall = summary["overall"]
    assert (overall["tasks"], overall["episodes"], overall["success"]) == (
        3,
        3,
        pytest.approx(2 / 3),
    )
    assert overall["turns_mean"] == 6
    assert overall["success_interval"] == pytest.approx(list(statistics.wilson_interval(2, 3)))
    assert overall["outcomes"] == {"failure": 1, "success": 2}
    assert list(summary["groups"]) == ["deep", "textcraft"]
    assert summary["groups"]["textcraft"]["success"] == 0.5


def test_a_failed_environment_is_counted_but_changes_no_mean():
    results = [episode_score(0, True), episode_score(1, False)]
    failed = [
        episode_score(2, False, outcome=Outcome.ENV_ERROR, turns=99),
        episode_score(0, False, 1, outcome=Outcome.ABORTED, turns=99),
    ]
    clean = scores.summarise(results)["overall"]
    mixed = scores.summarise(results + failed)["overall"]
    assert mixed["invalid"] == 2
    assert mixed["outcomes"]["env_error"] == 1
    same = set(clean) - {"invalid", "outcomes"}
    assert {k: mixed[k] for k in same} == {k: clean[k] for k in same}


def test_a_summary_of_only_failed_environments_has_no_success_rate():
    summary = scores.summarise([episode_score(0, False, outcome=Outcome.ENV_ERROR)])
    assert summary["overall"]["success"] is None
    assert summary["overall"]["success_interval"] is None
    metrics = scores.eval_metrics(summary, greedy=False)
    assert "eval/success" not in metrics
    assert metrics["eval/env_errors"] == 1


def test_every_task_has_the_same_weight_for_any_number_of_samples():
    results = [episode_score(0, True, s) for s in range(9)] + [episode_score(1, False)]
    assert scores.summarise(results)["overall"]["success"] == 0.5


def test_pass_at_k_of_a_summary_is_limited_by_the_smallest_number_of_samples():
    results = [episode_score(0, s == 0, s) for s in range(4)] + [
        episode_score(1, False, s) for s in range(5)
    ]
    summary = scores.summarise(results)["overall"]
    assert summary["pass_at_k"] == pytest.approx({"1": 0.125, "2": 0.25, "4": 0.5})


def test_samples_that_agree_within_a_task_do_not_narrow_the_interval():
    once = [episode_score(t, t < 5) for t in range(10)]
    four_times = [episode_score(t, t < 5, s) for t in range(10) for s in range(4)]
    assert (
        scores.summarise(four_times)["overall"]["success_interval"]
        == scores.summarise(once)["overall"]["success_interval"]
    )


def test_independent_samples_narrow_the_interval():
    rng = np.random.default_rng(0)
    many = [episode_score(t, bool(rng.random() < 0.5), s) for t in range(200) for s in range(4)]
    low, high = scores.summarise(many)["overall"]["success_interval"]
    one_low, one_high = statistics.wilson_interval(100, 200)
    assert high - low < 0.6 * (one_high - one_low)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_tasks_whose_samples_all_agree_count_once(rate):
    assert statistics.cluster_interval([rate] * 10, 40) == statistics.wilson_interval(10 * rate, 10)


def test_samples_of_tasks_with_equal_rates_count_as_independent():
    assert statistics.cluster_interval([0.5] * 10, 40) == statistics.wilson_interval(20, 40)


def test_an_episode_counted_twice_is_refused():
    with pytest.raises(ValueError, match="textcraft_3"):
        scores.summarise([episode_score(3, True), episode_score(3, True)])


@pytest.mark.parametrize("greedy", [False, True])
def test_eval_metrics_have_names_of_the_metric_table(greedy):
    results = [episode_score(0, True), episode_score(1, False, group="babyai GoTo")]
    metrics = scores.eval_metrics(scores.summarise(results), greedy=greedy)
    for name in metrics:
        lookup(name)
    suffix = "_greedy" if greedy else ""
    assert metrics[f"eval/success{suffix}"] == 0.5
    interval = (metrics[f"eval/success{suffix}_low"], metrics[f"eval/success{suffix}_high"])
    assert interval == statistics.wilson_interval(1, 2)
    assert metrics[f"eval/success{suffix}/babyai GoTo"] == 0.0


def make_two_environments():
    """Returns scores of three episodes: TextCraft solves one of two tasks, BabyAI none of one.

    Both environments have a group named `depth 1`.
    """
    babyai = episode_score("babyai_7", False, group="depth 1", turns=9)
    return [
        babyai,
        episode_score(0, True, group="depth 1"),
        episode_score(1, False, group="depth 2"),
    ]


def test_environments_are_scored_separately_and_their_groups_do_not_mix():
    summary = scores.summarise(make_two_environments())
    assert summary["environments"]["textcraft"]["success"] == 0.5
    assert summary["environments"]["babyai"]["turns_mean"] == 9
    assert summary["overall"]["success"] == pytest.approx(1 / 3)  # every task has the same weight
    assert list(summary["groups"]) == ["babyai depth 1", "textcraft depth 1", "textcraft depth 2"]


@pytest.mark.parametrize("greedy", [False, True])
def test_eval_metrics_of_environments_have_names_of_the_metric_table(greedy):
    metrics = scores.eval_metrics(scores.summarise(make_two_environments()), greedy=greedy)
    for name in metrics:
        lookup(name)
    suffix = "_greedy" if greedy else ""
    assert metrics[f"eval/textcraft/success{suffix}"] == 0.5
    assert metrics[f"eval/textcraft/success{suffix}_low"] == statistics.wilson_interval(1, 2)[0]
    assert metrics[f"eval/babyai/episodes{suffix}"] == 1
    assert metrics[f"eval/success{suffix}/textcraft depth 1"] == 1.0


def test_a_single_environment_has_no_separate_metrics():
    metrics = scores.eval_metrics(scores.summarise([episode_score(0, True)]), greedy=False)
    assert not [name for name in metrics if name.startswith("eval/textcraft/")]


def test_mcnemar_matches_hand_computed_values():
    # 10 tasks differ, one in favour of a, so p = 2 * (1 + 10) / 2**10
    assert statistics.mcnemar_p(1, 9) == pytest.approx(22 / 1024)
    assert statistics.mcnemar_p(5, 5) == 1.0
    assert statistics.mcnemar_p(0, 0) == 1.0


def test_a_clear_improvement_is_significant_and_an_equal_policy_is_not():
    a = [episode_score(t, t % 4 == 0) for t in range(80)]
    b = [episode_score(t, t % 4 != 1) for t in range(80)]
    better = difference(a, b, resamples=500)
    assert better["difference"] == pytest.approx(0.5)
    assert better["test"] == "mcnemar" and better["p_value"] < 1e-6
    assert 0.3 < better["interval"][0] < 0.5 < better["interval"][1] < 0.7
    same = difference(a, a, resamples=500)
    assert (same["difference"], same["p_value"], same["interval"]) == (0.0, 1.0, [0.0, 0.0])


def test_the_difference_of_swapped_sides_is_its_negative():
    a = [episode_score(t, t % 3 == 0, s) for t in range(30) for s in range(2)]
    b = [episode_score(t, (t + s) % 2 == 0, s) for t in range(30) for s in range(2)]
    forward = difference(a, b, resamples=400)
    backward = difference(b, a, resamples=400)
    assert forward["test"] == "sign_flip"
    assert forward["difference"] == -backward["difference"]
    assert forward["p_value"] == backward["p_value"]


def test_the_interval_of_a_difference_is_two_sided_and_over_all_resamples():
    """Checks 900 tasks, of which only b solves a third and only a solves a ninth.

    The resamples are drawn in several batches.
    """
    a = [episode_score(t, t % 9 == 0) for t in range(900)]
    b = [episode_score(t, t % 9 in (1, 2, 3)) for t in range(900)]
    found = difference(a, b, resamples=4000)
    change = np.array([y.success - x.success for x, y in zip(a, b, strict=True)], float)
    half = 1.96 * change.std() / 30
    expected = (change.mean() - half, change.mean() + half)
    assert found["interval"] == pytest.approx(expected, abs=half / 20)


def test_the_sign_flip_test_is_two_sided():
    """Checks three tasks that only b solves: 2 of the 8 sign patterns differ at least as much."""
    a = [episode_score(t, False, s) for t in range(3) for s in range(2)]
    b = [episode_score(t, True, s) for t in range(3) for s in range(2)]
    found = difference(a, b, resamples=4000)
    assert found["test"] == "sign_flip" and found["p_value"] == pytest.approx(0.25, abs=0.03)


def test_a_sign_flip_p_value_is_never_zero():
    a = [episode_score(t, False, s) for t in range(60) for s in range(2)]
    b = [episode_score(t, True, s) for t in range(60) for s in range(2)]
    assert difference(a, b, resamples=99)["p_value"] == pytest.approx(1 / 100)


def test_one_task_with_two_samples_requires_the_sign_flip_test():
    a = [episode_score(0, True), episode_score(1, False), episode_score(1, True, 1)]
    b = [episode_score(0, True), episode_score(1, True)]
    assert difference(a, b, resamples=10)["test"] == "sign_flip"


def test_only_tasks_that_both_finished_are_compared():
    a = [episode_score(0, True), episode_score(1, True), episode_score(2, True)]
    b = [
        episode_score(0, True),
        episode_score(1, False, outcome=Outcome.ENV_ERROR),
        episode_score(3, False),
    ]
    result = difference(a, b, resamples=10)
    assert result["tasks"] == 1 and result["difference"] == 0


def test_evaluations_of_different_tasks_cannot_be_compared():
    with pytest.raises(ValueError, match="same task set"):
        difference([episode_score(0, True)], [episode_score(1, True)])


def test_scores_json_contains_everything_and_round_trips(tmp_path):
    results = [
        episode_score(1, False),
        episode_score(0, True),
        episode_score(2, False, outcome=Outcome.ENV_ERROR),
    ]
    path = tmp_path / "scores.json"
    decoding = {"mode": "greedy", "max_turns": {"textcraft": 5}, "temperature": 0.0}
    arguments = dict(model="tiny", decoding=decoding, manifests={"textcraft": "ab12"})
    scores.write_scores(path, results, **arguments)
    document, episodes = scores.read_scores(path)
    assert sorted(episodes, key=str) == sorted(results, key=str)
    assert document["manifests"] == {"textcraft": "ab12"}
    assert document["overall"]["invalid"] == 1
    before = path.read_bytes()
    scores.write_scores(path, results[::-1], **arguments)
    assert path.read_bytes() == before
    json.loads(before)


def test_a_trajectory_gives_an_episode_score():
    found = trajectory("", item_id="babyai_17", sample=2, outcome=Outcome.HORIZON, score=0.25)
    assert scores.from_trajectory(found, "GoTo") == EpisodeScore(
        "babyai_17", "GoTo", 2, False, 0.25, 0, Outcome.HORIZON
    )
