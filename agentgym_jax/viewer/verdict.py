"""Verdict on a run or on a pair of runs: one sentence, and the numbers behind it."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.viewer.evaluations import (
    Evaluation,
    first_and_last,
    last_of_each_mode,
    last_results,
    paired_change,
)
from agentgym_jax.viewer.series import Run

GOOD, OPEN, BAD = "good", "open", "bad"
_SIGNIFICANT = 0.05  # largest p-value of a clear difference
_FEW_TASKS = 6  # with fewer tasks no difference is clear (5 tasks: the smallest p-value is 6 %)
_ENDS = 5  # steps in the means at the start and at the end of a curve
_NO_EVALUATION = (
    "Set evaluation.at_start=True and evaluation.every, or evaluate two checkpoints, for a verdict."
)
# Metrics that describe a run without evaluation: name, description, unit, True if more is better.
_TRAINING_CURVES = (
    ("rollout/success", "success on training tasks", "share"),
    ("agentevol/kept_fraction", "share of explored episodes that are kept", "share"),
    ("dpo/accuracy", "share of preference pairs in the right order", "share"),
    ("sft/loss", "training loss per token", "nats"),
    ("rollout/reward_mean", "reward per training episode", "reward"),
)
Verdict = dict[str, Any]


def level_of(change: Mapping[str, Any]) -> str:
    """Returns GOOD or BAD for a clear difference, otherwise OPEN.

    A difference is clear if its interval excludes 0 and its p-value is at most 5 %. The second
    condition matters for a handful of tasks, for which the bootstrap interval is too narrow.
    """
    low, high = change["interval"]
    if change["p_value"] > _SIGNIFICANT or low <= 0 <= high:
        return OPEN
    return GOOD if low > 0 else BAD


def verdict_of_run(evaluations: Sequence[Evaluation], run: Run) -> Verdict:
    """Returns the verdict on a run: its level, a title, a sentence and the paired changes."""
    pairs = [paired_change(*pair) for pair in first_and_last(evaluations)]
    changes = [change for change in pairs if change is not None]
    if changes:
        main = changes[0]
        title = {GOOD: "Learned", BAD: "Got worse", OPEN: "No clear change"}[level_of(main)]
        text = (
            f"{main['mode'].capitalize()} held-out success went from {_percent(main['success_a'])} (step "
            f"{main['step_a']}) to {_percent(main['success_b'])} (step {main['step_b']}) on "
            f"{_tasks(main)}: {_difference_words(main)}.{_disagreement(changes)}"
        )
        return _verdict(level_of(main), title, text, changes)
    if evaluations:
        results = last_results(evaluations)
        main = results[0]
        if main["success_b"] is None:
            return _verdict(OPEN, "No valid evaluation", "Every evaluation episode failed.", [])
        low, high = main["interval_b"]
        text = (
            f"The only evaluation (step {main['step_b']}, {main['mode']}) solved "
            f"{_percent(main['success_b'])} of {_tasks(main)} (95 % interval {_percent(low)} to "
            f"{_percent(high)}). One evaluation shows no change."
        )
        title = f"{_percent(main['success_b'])} solved"
        return {**_verdict(OPEN, title, text, []), "results": results}
    return _verdict_without_evaluation(run)


def verdict_of_pair(
    a: Sequence[Evaluation], b: Sequence[Evaluation], names: tuple[str, str]
) -> Verdict:
    """Returns the verdict on the last evaluations of two runs."""
    pairs = [paired_change(*pair) for pair in last_of_each_mode(a, b)]
    changes = [change for change in pairs if change is not None]
    if not changes:
        sides = [name for name, found in zip(names, (a, b), strict=True) if not found]
        reason = (
            f"There is no evaluation in {' and '.join(sides)}."
            if sides
            else "The evaluations of the two runs have no task with valid episodes in common."
        )
        return not_comparable(reason)
    main = changes[0]
    title = {GOOD: "B is better", BAD: "A is better", OPEN: "No clear difference"}[level_of(main)]
    text = (
        f"On the same {_tasks(main)}, B solves {_percent(main['success_b'])} (step "
        f"{main['step_b']}) and A {_percent(main['success_a'])} (step {main['step_a']}), "
        f"{main['mode']}: {_difference_words(main)}.{_disagreement(changes)}"
    )
    return _verdict(level_of(main), title, text, changes)


def not_comparable(reason: str) -> Verdict:
    """Returns the verdict on two runs that cannot be compared."""
    return _verdict(OPEN, "Not comparable", reason, [])


def _verdict_without_evaluation(run: Run) -> Verdict:
    for name, words, unit in _TRAINING_CURVES:
        steps, values = run.series(name)
        if len(steps) < 2:
            continue
        ends = [values[:_ENDS].mean(), values[-_ENDS:].mean()]
        show = _percent if unit == "share" else lambda value, unit=unit: f"{value:.3g} {unit}"
        number = min(_ENDS, len(values))
        text = (
            f"The {words} went from {show(ends[0])} to {show(ends[1])} (means of the first and "
            f"last {number} steps). This is no verdict on held-out tasks. {_NO_EVALUATION}"
        )
        return _verdict(OPEN, "No evaluation", text, [])
    return _verdict(OPEN, "No evaluation", f"No curve to describe yet. {_NO_EVALUATION}", [])


def _verdict(level: str, title: str, text: str, changes: Sequence[Mapping[str, Any]]) -> Verdict:
    def with_level(change: Mapping[str, Any]) -> dict[str, Any]:
        return {**change, "level": level_of(change)}

    rows = [{**with_level(c), "groups": [*map(with_level, c["groups"])]} for c in changes]
    return {"level": level, "title": title, "text": text, "changes": rows}


def _disagreement(changes: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence about the other decoding modes if their level differs from the first."""
    others = [change for change in changes if level_of(change) != level_of(changes[0])]
    return "".join(
        f" The {other['mode']} episodes say otherwise: {_difference_words(other)}."
        for other in others
    )


def _tasks(change: Mapping[str, Any]) -> str:
    return f"{change['tasks']} task{'' if change['tasks'] == 1 else 's'}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _difference_words(change: Mapping[str, Any]) -> str:
    if change["tasks"] < _FEW_TASKS:
        return f"{_points(change['difference'])} points, too few tasks for a verdict"
    difference, low, high = (_points(x) for x in (change["difference"], *change["interval"]))
    p_value = "< 0.001" if change["p_value"] < 0.001 else f"= {change['p_value']:.2g}"
    return f"{difference} points, 95 % interval {low} to {high}, p {p_value}"


def _points(share: float) -> str:
    rounded = round(100 * share)
    return f"{rounded:+d}".replace("-", "\N{MINUS SIGN}") if rounded else "0"
