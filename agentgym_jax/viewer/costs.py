"""Cost of a run in words: time with its largest parts, tokens, and money."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.viewer.series import Run, visible_time_shares

_LOGGED_TIMES = ("time/iteration_s", "time/eval_s", "time/checkpoint_s")
_TRAINED_TOKENS = ("batch/action_tokens", "sft/tokens")
_LARGEST_PARTS = 3  # parts of a step that are named


def cost(run: Run, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Returns pairs of label and value; `rows` are the recorded episodes."""
    trained = sum(float(run.series(name)[1].sum()) for name in _TRAINED_TOKENS)
    money = float(run.series("judge/cost")[1].sum())
    seconds = _seconds(run)
    found = [
        ("time of all steps", seconds and _duration(seconds)),
        ("sampled tokens", _count(sum(row["tokens"] for row in rows))),
        ("trained tokens", _count(trained)),
        ("price of the judge", money and f"{money:.4g}"),
    ]
    return [(label, value) for label, value in found if value]


def time_of_a_step(run: Run) -> str:
    """Returns the largest parts of a step in words; empty if no times were logged."""
    shares = visible_time_shares(run)[1] if run.has("time/iteration_s") else {}
    means = {label: float(values.mean()) for label, values in shares.items()}
    largest = sorted(means, key=means.__getitem__, reverse=True)[:_LARGEST_PARTS]
    return ", ".join(f"{label} {100 * means[label]:.0f}\u00a0%" for label in largest)


def _seconds(run: Run) -> float:
    """Returns the sum of logged times, or the time between the first and the last line."""
    logged = sum(float(run.series(name)[1].sum()) for name in _LOGGED_TIMES)
    if run.has("time/iteration_s"):
        return logged
    times = [line["time"] for line in run.lines if "time" in line]
    return max(times) - min(times) if times else 0.0


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _count(number: float) -> str:
    """Returns a count in words; empty for 0."""
    for size, sign in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.3g} {sign}"
    return f"{number:,.0f}" if number else ""
