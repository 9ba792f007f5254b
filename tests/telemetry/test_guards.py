"""Guards: each one detects its problem and takes the configured action.

After a resume, a guard makes the same decisions as in an uninterrupted run.
"""

import dataclasses
import json
import math

import pytest

from agentgym_jax.config.sections import ConfigError, call
from agentgym_jax.telemetry import guards
from agentgym_jax.telemetry.guards import GuardSettings, History
from agentgym_jax.telemetry.metrics import lookup

WINDOW = 3


def options(**changes):
    return GuardSettings(**dict(window=WINDOW) | changes)


def after(settings, lines, history=None):
    """Returns the history after some steps, and the findings of the last step."""
    history, found = history or History(), []
    for metrics in lines:
        found = guards.check_episodes(settings, history, metrics)
        found += guards.check_scores(settings, metrics, 0.1)
        found += guards.check_update(settings, history, metrics)
        history = guards.update_history(settings, history, metrics, found)
    return history, found


def episodes(*rewards, entropy=1.0):
    return [{"policy/trained_reward_mean": r, "rollout/sampled_entropy": entropy} for r in rewards]


def groups(informative, compared=16):
    counts = {"groups": 16, "informative_groups": informative}
    counts["zero_variance_groups"] = compared - informative
    return {f"rollout/{name}": float(count) for name, count in counts.items()}


def updates(*norms):
    return [
        {"policy/grad_norm": n, "policy/grad_norm_max": n, "policy/nonfinite": 0.0} for n in norms
    ]


NAN = {"policy/grad_norm": 0.0, "policy/grad_norm_max": 0.0, "policy/nonfinite": 1.0}
GAP = {"policy/logprob_gap_mean": 0.2, "policy/logprob_gap_max": 0.9}

# Maps each guard to steps in which the guard finds its problem.
TROUBLE = {
    "grad_spike": updates(1.0, 1.0, 1.0, 11.0),
    "logprob_gap": [GAP],
    "entropy_collapse": episodes(1.0, 1.0, 1.0, entropy=0.001),
    "reward_collapse": episodes(1.0, 1.0, 1.0, 0.0, 0.4),
    "hopeless_start": episodes(1.0, 1.0, entropy=0.05),
}


@pytest.mark.parametrize("action", ["warn", "skip", "stop"])
@pytest.mark.parametrize("guard", TROUBLE)
def test_a_guard_takes_its_configured_action(guard, action):
    _, found = after(options(**{guard: action}), TROUBLE[guard])
    assert [(f.guard, f.action) for f in found] == [(guard, action)]
    assert guards.withholds_update(found) == (action != "warn")
    stop = guards.stop_reason(found)
    assert (stop is None) == (action != "stop")
    assert guards.guard_metrics(found) == {"guards/tripped": 1.0, f"guards/{guard}": 1.0}


@pytest.mark.parametrize("guard", TROUBLE)
def test_a_disabled_guard_finds_nothing(guard):
    _, found = after(options(**{guard: "off"}), TROUBLE[guard])
    assert not found and guards.guard_metrics(found) == {"guards/tripped": 0.0}


@pytest.mark.parametrize("guard", TROUBLE)
def test_a_guard_finds_nothing_one_step_before_its_problem(guard):
    *before, _ = TROUBLE[guard]
    _, found = after(options(), before)
    assert guard not in [finding.guard for finding in found]


@pytest.mark.parametrize("guard", TROUBLE)
def test_the_message_states_the_finding_the_threshold_and_the_remedy(guard):
    seen = {
        "grad_spike": ("norm of 11", "more than 10 ", "lower optimizer.learning_rate"),
        "logprob_gap": ("differ by 0.2", "max_logprob_gap=0.1", "check dtypes"),
        "entropy_collapse": (
            "was 0.001 nats",
            "entropy_floor=0.01",
            "raise algorithm.entropy_coef",
        ),
        "reward_collapse": ("was 0.4667 over", "at least 0.5 was expected", "earlier checkpoint"),
        "hopeless_start": ("after two rollouts", "0.05 nats", "shorter warm start"),
    }
    (finding,) = after(options(), TROUBLE[guard])[1]
    assert all(part in finding.text for part in seen[guard]), finding.text


def test_a_nonfinite_update_is_skipped_and_several_in_a_row_stop_the_run():
    settings = options(nonfinite="skip", nonfinite_steps=3)
    actions = [after(settings, [NAN] * n)[1][0].action for n in (1, 2, 3)]
    assert actions == ["skip", "skip", "stop"]
    history, _ = after(settings, [NAN, NAN, *updates(1.0), NAN])
    assert history.nonfinite_steps == 1  # the finite update resets the count
    (finding,) = after(options(nonfinite="stop"), [NAN])[1]
    assert finding.action == "stop" and "1 step(s) in a row" in finding.text


def test_a_nonfinite_update_of_the_critic_counts_as_well():
    (finding,) = after(options(), [{"critic/skipped": 1.0}])[1]
    assert finding.guard == "nonfinite"


def test_a_logprob_gap_of_nan_is_a_finding():
    metrics = {"policy/logprob_gap_mean": math.nan, "policy/logprob_gap_max": math.nan}
    assert [f.guard for f in after(options(), [metrics])[1]] == ["logprob_gap"]


def test_only_actions_that_withhold_an_update_set_a_gradient_limit():
    history, _ = after(options(), updates(1.0, 2.0, 3.0))
    limits = {a: guards.grad_norm_limit(options(grad_spike=a), history) for a in ("warn", "off")}
    assert limits == {"warn": math.inf, "off": math.inf}
    assert guards.grad_norm_limit(options(grad_spike="skip"), history) == 20.0
    assert guards.grad_norm_limit(options(grad_spike="stop"), History()) == math.inf


def test_a_lasting_gradient_norm_is_normal_after_half_a_window():
    settings = options(grad_spike="skip")
    history, found = after(settings, updates(1.0, 1.0, 1.0, 50.0))
    assert found
    history, found = after(settings, updates(50.0, 50.0), history)
    assert not found


def test_one_outlier_does_not_move_the_gradient_limit():
    history, _ = after(options(), updates(1.0, 90.0, 1.0))
    assert guards.spike_threshold(options(), history) == 10.0


def test_a_step_counts_with_its_largest_norm_and_the_limit_itself_is_allowed():
    history, _ = after(options(), updates(1.0, 1.0, 1.0))
    spike = {"policy/grad_norm": 4.0, "policy/grad_norm_max": 10.5, "policy/nonfinite": 0.0}
    assert after(options(), [spike], history)[1]
    assert not after(options(), updates(10.0), history)[1]


def test_the_norm_of_a_nonfinite_update_is_not_remembered():
    """Checks that the 0 logged for a skipped step is ignored, because it would lower the limit."""
    history, _ = after(options(), [*updates(2.0, 3.0), NAN])
    assert history.grad_norms == (2.0, 3.0)


@pytest.mark.parametrize(
    ("action", "said"), [("warn", "was applied"), ("skip", "was not"), ("stop", "was not")]
)
def test_the_message_states_if_the_update_was_applied(action, said):
    (finding,) = after(options(grad_spike=action), TROUBLE["grad_spike"])[1]
    assert f"the update {said}" in finding.text


def test_low_entropy_in_a_single_step_is_not_a_collapse():
    lines = [episodes(1.0, entropy=e)[0] for e in (0.05, 0.05, 0.0)]
    assert not after(options(), lines)[1]


def test_the_best_reward_is_a_mean_over_a_full_window():
    assert not after(options(), episodes(1.0, 0.0, 0.0))[1]


def test_all_findings_are_counted_and_reported():
    line = GAP | {"critic/skipped": 1.0}
    _, found = after(options(nonfinite="stop"), [line])
    assert guards.guard_metrics(found)["guards/tripped"] == 2.0
    assert all(
        f"guard {name}" in guards.stop_reason(found) for name in ("logprob_gap", "nonfinite")
    )


def test_a_reward_collapse_is_relative_to_the_best_reward_of_either_sign():
    assert not after(options(), episodes(*[0.0] * 9))[1]
    assert not after(options(), episodes(-1.0, -1.0, -1.0, -1.4, -1.4, -1.4))[1]
    assert after(options(), episodes(-1.0, -1.0, -1.0, -1.6, -1.6, -1.6))[1]


@pytest.mark.parametrize("line", [{}, *episodes(math.nan)])
def test_a_step_without_a_mean_reward_does_not_count_as_reward_zero(line):
    history, _ = after(options(), episodes(1.0, 1.0, 1.0))
    assert after(options(), [line] * 5, history)[0].rewards == history.rewards


def test_a_guard_reports_a_lasting_problem_only_once():
    settings = options(entropy_collapse="warn")
    first, found = after(settings, TROUBLE["entropy_collapse"])
    history, _ = after(settings, TROUBLE["entropy_collapse"][:-1])
    assert len(guards.new_findings(found, history)) == 1
    _, again = after(settings, episodes(1.0, entropy=0.001), first)
    assert again and not guards.new_findings(again, first)
    calm, _ = after(settings, episodes(1.0, entropy=9.0), first)
    _, anew = after(settings, episodes(1.0, 1.0, 1.0, entropy=0.001), calm)
    assert len(guards.new_findings(anew, after(settings, episodes(1.0), calm)[0])) == 1


def test_the_history_is_bounded_and_restored_unchanged():
    lines = [a | b for a, b in zip(episodes(*[0.1] * 50), updates(*[0.3] * 50), strict=True)]
    history, _ = after(options(), lines)
    assert max(map(len, (history.grad_norms, history.rewards, history.entropies))) == WINDOW
    stored = json.loads(json.dumps(history.to_json()))
    assert History.from_json(stored) == history
    assert History.from_json(None) == History()


@pytest.mark.parametrize("at", range(1, 8))
def test_a_resumed_run_has_the_findings_of_an_uninterrupted_run(at):
    rewards = [0.1, 0.9, 0.8, 0.7, 0.2, 0.1, 0.0, 0.9]
    norms = [1.0, 2.0, 30.0, 1.0, 25.0, 300.0, 1.0, 1.0]
    lines = [a | b for a, b in zip(episodes(*rewards), updates(*norms), strict=True)]
    settings = options(grad_spike="skip", reward_collapse="stop")
    history, _ = after(settings, lines[:at])
    resumed = History.from_json(json.loads(json.dumps(history.to_json())))
    assert after(settings, lines[at:], resumed) == after(settings, lines)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grad_spike": "ignore"}, "grad_spike='ignore': expected one of off, warn, skip, stop"),
        ({"nonfinite": "warn"}, "nonfinite='warn': expected one of skip, stop"),
        ({"window": 0}, "window=0: expected"),
        ({"nonfinite_steps": 0}, "nonfinite_steps=0: expected"),
        ({"grad_spike_factor": 1.0}, "grad_spike_factor=1.0: expected a number, above 1"),
        ({"reward_drop": 0.0}, "reward_drop=0.0: expected a number, above 0"),
    ],
)
def test_an_invalid_value_is_refused(changes, message):
    section = dataclasses.asdict(options()) | changes
    with pytest.raises(ConfigError, match=f"config.guards.{message}"):
        call(GuardSettings, "guards", section)


def test_every_guard_has_an_entry_in_the_metric_table():
    for guard in (*TROUBLE, "nonfinite"):
        assert lookup(f"guards/{guard}").unit == "1"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rollout/success": 0.0, **groups(0)}, "no episode has succeeded"),
        ({"rollout/success": 0.9, **groups(3)}, "3 of 16 groups"),
        # groups of one episode cannot differ
        ({"rollout/success": 0.0, **groups(0, compared=0)}, "no episode has succeeded"),
        ({"rollout/success": 0.0, **groups(0, compared=0), "policy/advantage_std": 0.1}, ""),
        ({"rollout/success": 0.9, **groups(0, compared=0), "policy/advantage_std": 0.1}, ""),
        ({"rollout/success": 0.9, **groups(1, compared=2)}, ""),  # the other groups have failed
        ({"rollout/sampled_entropy": 0.05}, "entropy is 0.05"),
        ({"rollout/success": 0.0}, ""),  # groups differ by a penalty
    ],
)
def test_a_start_that_leaves_little_to_learn_from_is_reported_once(changes, expected):
    (step,) = episodes(0.0)
    step |= {"rollout/success": 0.4, **groups(9)}
    texts = []
    history = History()
    for _ in range(4):
        found = guards.check_episodes(options(window=10), history, step | changes)
        texts.append([finding.text for finding in found])
        history = guards.update_history(options(window=10), history, step | changes, found)
    assert texts[0] == texts[2] == texts[3] == []
    assert [expected in text for text in texts[1]] == [True] * bool(expected)
