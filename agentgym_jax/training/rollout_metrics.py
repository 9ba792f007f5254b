"""What one collection of episodes looked like, under the names of the metric table."""

import collections
from collections.abc import Sequence

import numpy as np

from agentgym_jax.algorithms.mixture_horizon import TurnLimit
from agentgym_jax.data.tasks import Task, group_label
from agentgym_jax.learner.experience import Experience
from agentgym_jax.metrics import of_environment
from agentgym_jax.rollout.collect import CollectStatistics
from agentgym_jax.sampling.statistics import SamplerStatistics
from agentgym_jax.trajectory import Trajectory, outcome_counts


def of(
    trajectories: Sequence[Trajectory],
    statistics: CollectStatistics,
    sampler: SamplerStatistics,
    tasks: Sequence[Task],
    environments: Sequence[str],
) -> dict[str, float]:
    """Metrics of the episodes of one step.

    Args:
      trajectories: all of them, task-major.
      statistics: of the collection.
      sampler: counted during the collection.
      tasks: of the step; each has the same number of episodes.
      environments: of the run; if there are several, each has metrics of its own as well.
    """
    metrics = {
        "rollout/retries": float(statistics.restarts + statistics.replaced),
        "rollout/env_errors": float(sum(statistics.env_errors.values())),
        "rollout/malformed_actions": float(statistics.malformed_actions),
        "rollout/sampled_tokens": float(sampler.sampled),
        "rollout/occupancy": sampler.occupancy,
        "rollout/ingest_occupancy": sampler.ingest_occupancy,
    }
    for outcome, count in outcome_counts(trajectories).items():
        metrics[f"rollout/outcome/{outcome}"] = float(count)
    for cause, count in statistics.env_errors.items():
        metrics[f"rollout/env_errors/{cause}"] = float(count)
    played = [task for task in tasks for _ in range(len(trajectories) // len(tasks))]
    metrics |= _of_episodes(trajectories)
    metrics |= _of_labels(trajectories, played, is_mixture=len(environments) > 1)
    if len(environments) > 1:
        for name in environments:
            own = [
                t for t, task in zip(trajectories, played, strict=True) if task.environment == name
            ]
            metrics |= {of_environment(k, name): v for k, v in _of_episodes(own).items()}
    seconds = max(statistics.seconds, 1e-9)
    kept = sum(len(t.tokens) for t in trajectories)
    computed = sampler.sampled + sampler.ingested
    metrics |= {
        "rollout/computed_per_kept_tokens": computed / max(1, kept),
        "time/rollout_s": statistics.seconds,
        "time/decode_s": sampler.seconds_decode,
        "time/prefill_s": sampler.seconds_ingest,
        "time/env_wait_s": statistics.seconds_env_wait,
        "rate/decode_tokens_per_s": sampler.sampled / seconds,
        "rate/episodes_per_min": 60.0 * len(trajectories) / seconds,
        "rate/env_steps_per_s": sum(len(t.turns) for t in trajectories) / seconds,
    }
    return metrics


def _of_episodes(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """What is known of some episodes; nothing of none."""
    if not trajectories:
        return {}
    valid = [t for t in trajectories if t.outcome.is_valid]
    metrics = {
        "rollout/episodes": float(len(trajectories)),
        "rollout/invalid_fraction": 1.0 - len(valid) / len(trajectories),
    }
    return metrics | _of_valid(valid) if valid else metrics


def _of_valid(valid: Sequence[Trajectory]) -> dict[str, float]:
    turns = np.array([len(t.turns) for t in valid], np.float64)
    actions = np.array([t.action_mask.sum() for t in valid], np.float64)
    tokens = np.array([len(t.tokens) for t in valid], np.float64)
    rewards = np.array([t.reward for t in valid])
    total_actions = max(1.0, actions.sum())
    return {
        "rollout/success": float(np.mean([t.success for t in valid])),
        "rollout/reward_mean": float(rewards.mean()),
        "rollout/reward_std": float(rewards.std()),
        "rollout/score_mean": float(np.mean([t.score for t in valid])),
        "rollout/truncation_rate": float(np.mean([t.outcome.is_truncated for t in valid])),
        "rollout/turns_mean": float(turns.mean()),
        "rollout/turns_max": float(turns.max()),
        "rollout/action_tokens_mean": float(actions.mean()),
        "rollout/action_tokens_per_turn": float(actions.sum() / max(1.0, turns.sum())),
        "rollout/tokens_mean": float(tokens.mean()),
        "rollout/tokens_max": float(tokens.max()),
        "rollout/wasted_fraction": float(
            sum(turn.is_wasted for t in valid for turn in t.turns) / max(1.0, turns.sum())
        ),
        "rollout/cut_turns": float(sum(turn.is_cut for t in valid for turn in t.turns)),
        "rollout/sampled_entropy": float(-sum(t.logprobs.sum() for t in valid) / total_actions),
    }


def _of_labels(
    trajectories: Sequence[Trajectory], played: Sequence[Task], *, is_mixture: bool
) -> dict[str, float]:
    """Success by reporting group, such as the level."""
    successes: dict[str, list[bool]] = collections.defaultdict(list)
    for trajectory, task in zip(trajectories, played, strict=True):
        if trajectory.outcome.is_valid:
            label = group_label(task.environment, task.group, is_mixture=is_mixture)
            successes[label].append(trajectory.success)
    return {f"rollout/success/{label}": float(np.mean(x)) for label, x in successes.items()}


def of_limits(limits: Sequence[TurnLimit], environments: Sequence[str]) -> dict[str, float]:
    """The turn limits of a step: the largest, and what tells them apart.

    Args:
      limits: of every task of the step.
      environments: of the run; if there are several, each that had a task has its own largest.
    """
    turns = [limit.turns for limit in limits]
    metrics = {"horizon/turns": float(max(turns))}
    if any(limit.place.group or limit.place.drawn for limit in limits):
        metrics["horizon/turns_mean"] = float(np.mean(turns))
        metrics["horizon/turns_min"] = float(min(turns))
    largest: dict[str, int] = collections.defaultdict(int)
    for limit in limits:
        place, is_mixture = limit.place, len(environments) > 1
        names = [of_environment("horizon/turns", place.environment)] if is_mixture else []
        if place.group:
            label = group_label(place.environment, place.group, is_mixture=is_mixture)
            names.append(f"horizon/turns/{label}")
        for name in names:
            largest[name] = max(largest[name], limit.turns)
    return metrics | {name: float(most) for name, most in largest.items()}


def of_rounds(
    is_informative: np.ndarray,
    kept: Sequence[Trajectory],
    played: Sequence[Trajectory],
    tasks_per_round: int,
) -> dict[str, float]:
    """What it cost to fill a step with informative groups.

    Args:
      is_informative: bool, of every group played.
      kept: episodes that the step learns from.
      played: all of them.
      tasks_per_round: P; as many groups are kept.
    """
    sampled = [sum(int(t.action_mask.sum()) for t in episodes) for episodes in (played, kept)]
    return {
        "rollout/rounds": len(is_informative) / tasks_per_round,
        "rollout/played_groups": float(len(is_informative)),
        "rollout/played_informative_groups": float(is_informative.sum()),
        "rollout/discarded_groups": float(len(is_informative) - tasks_per_round),
        "rollout/discarded_tokens": float(sampled[0] - sampled[1]),
    }


def of_groups(
    experience: Experience, tasks: Sequence[Task], environments: Sequence[str]
) -> dict[str, float]:
    """How much the groups of samples have to teach.

    Args:
      experience: of the step.
      tasks: of the step, a group of episodes each.
      environments: of the run; if there are several, each has counts of its own as well.
    """
    spread = experience.advantage_BT[experience.action_mask_BT]
    metrics = {
        "rollout/groups": float(experience.statistics.groups),
        "rollout/informative_groups": float(experience.statistics.informative),
        "rollout/zero_variance_groups": float(experience.statistics.zero_variance),
        "policy/advantage_std": float(spread.std()) if spread.size else 0.0,
    }
    if len(environments) == 1:
        return metrics
    teaches_P = experience.informative_B.reshape(len(tasks), -1).any(axis=1)
    is_whole_P = experience.valid_B.reshape(len(tasks), -1).sum(axis=1) > 1
    for name in environments:
        own_P = np.array([task.environment == name for task in tasks])
        if own_P.any():
            counts = {
                "rollout/groups": own_P.sum(),
                "rollout/informative_groups": (own_P & teaches_P).sum(),
                "rollout/zero_variance_groups": (own_P & is_whole_P & ~teaches_P).sum(),
            }
            metrics |= {of_environment(k, name): float(v) for k, v in counts.items()}
    return metrics
