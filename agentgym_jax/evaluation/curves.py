"""Test-time scaling from one set of rollouts: fewer turns, fewer samples.

**Turn budgets.** An episode that was played with limit B is, up to turn b, the episode that would have
been played with limit b < B, if nothing that decides its turns depends on the limit: the agent is not
told its budget (`tell_budget="none"`), the environment is not told either (ours are not), and the
draws are keyed by position and not by what is left. Then success within b turns is `success` and
`turns <= b`, exactly, for every b up to B, sampled or greedy. An agent that is told its budget plays
another episode under another limit: then `turn_budgets` refuses. For a *trained* policy the curve
says what this policy does under smaller limits, not what training under them would have given.

**Sample counts.** pass@k and the majority of k are unbiased for every k up to the n samples that every
task has, if the samples were drawn independently under one decoding (samples.py). A greedy episode is
no such sample.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from agentgym_jax.evaluation.intervals import cluster_interval
from agentgym_jax.evaluation.samples import ESTIMATORS, at_k
from agentgym_jax.evaluation.scores import EpisodeScore, by_task, valid


def solved_within(episode: EpisodeScore, turns: int) -> bool:
    """Whether the task was solved in at most so many turns."""
    return episode.success and episode.turns <= turns


def turn_budgets(
    episodes: Sequence[EpisodeScore],
    *,
    max_turns: int,
    tell_budget: str,
    confidence: float = 0.95,
) -> list[dict[str, Any]]:
    """Success under every turn limit up to that of the rollouts; exact, see above.

    Args:
      episodes: of one environment, all played with the limit `max_turns`.
      max_turns: that limit.
      tell_budget: what the agent was told of it (rollout/budget.py).
      confidence: of the intervals.

    Returns:
      For each limit `turns`, `success`, `success_interval` and the estimators of samples.py (each
      for powers of two). The last is the evaluation itself.

    Raises:
      ValueError: the agent was told its budget, so that smaller ones must be played.
    """
    if tell_budget != "none":
        raise ValueError(
            f"turn_budgets: the agent was told its budget (tell_budget={tell_budget!r}), so an "
            "episode under a smaller limit is another episode. Evaluate with "
            "--config.evaluation.max_turns instead"
        )
    tasks = list(by_task(valid(episodes)).values())
    if not tasks:
        return []
    ks = [2**i for i in range(min(map(len, tasks)).bit_length())]
    curve = []
    for turns in range(1, max_turns + 1):
        counts = [(len(task), sum(solved_within(e, turns) for e in task)) for task in tasks]
        rates = [c / n for n, c in counts]
        episodes_in_all = sum(n for n, _ in counts)
        curve.append(
            {
                "turns": turns,
                "success": float(np.mean(rates)),
                "success_interval": list(cluster_interval(rates, episodes_in_all, confidence)),
                **{name: {str(k): at_k(name, counts, k) for k in ks} for name in ESTIMATORS},
            }
        )
    return curve


def sample_counts(episodes: Sequence[EpisodeScore]) -> list[dict[str, Any]]:
    """pass@k and majority of k for every k that all tasks have samples for; unbiased, see above.

    Args:
      episodes: sampled, not greedy, of any set of tasks.
    """
    tasks = by_task(valid(episodes)).values()
    counts = [(len(task), sum(e.success for e in task)) for task in tasks]
    most = min((n for n, _ in counts), default=0)
    return [
        {"k": k, **{name: at_k(name, counts, k) for name in ESTIMATORS}} for k in range(1, most + 1)
    ]
