"""Metrics of a step's episodes and advantages; with several environments also of each of them."""

import collections
from collections.abc import Sequence

import numpy as np

from agentgym_jax.algorithms.mixture_horizon import TurnLimit
from agentgym_jax.data.tasks import Task, group_label
from agentgym_jax.episodes.trajectory import Outcome, Trajectory
from agentgym_jax.learner.experience import Experience
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.sampling.sampler_statistics import SamplerStatistics
from agentgym_jax.telemetry.metrics import add_environment


def episode_metrics(
    trajectories: Sequence[Trajectory],
    statistics: CollectStatistics,
    sampler: SamplerStatistics,
    tasks: Sequence[Task],
    environments: Sequence[str],
) -> dict[str, float]:
    """Returns the metrics of the episodes of one step, which are task-major."""
    metrics = {
        "rollout/retries": float(statistics.restarts + statistics.replaced),
        "rollout/env_errors": float(sum(statistics.env_errors.values())),
        "rollout/parse_errors": float(statistics.parse_errors),
        "rollout/forks": float(statistics.forks),
        "rollout/overridden_parameters": float(statistics.overridden),
        "rollout/sampled_tokens": float(sampler.sampled),
        "rollout/occupancy": sampler.occupancy,
        "rollout/tokens_per_step": sampler.tokens_per_step,
        "rollout/prefill_occupancy": sampler.prefill_occupancy,
    }
    branches = [len(t.branches) for t in trajectories if t.outcome.is_valid]
    if branches:
        metrics["rollout/branches_mean"] = float(np.mean(branches))
    for outcome in Outcome:
        count = sum(trajectory.outcome == outcome for trajectory in trajectories)
        metrics[f"rollout/outcome/{outcome}"] = float(count)
    for cause, count in statistics.env_errors.items():
        metrics[f"rollout/env_errors/{cause}"] = float(count)
    is_mixture = len(environments) > 1
    metrics |= _outcome_metrics(trajectories)
    metrics |= _success_by_group(trajectories, tasks, is_mixture=is_mixture)
    if is_mixture:
        for name in environments:
            own = _outcome_metrics([t for t in trajectories if t.environment == name])
            metrics |= {add_environment(key, name): value for key, value in own.items()}
    seconds = max(statistics.seconds, 1e-9)
    kept = sum(t.num_tokens for t in trajectories)
    computed = sampler.sampled + sampler.prefilled
    metrics |= {
        "rollout/computed_per_kept_tokens": computed / max(1, kept),
        "time/rollout_s": statistics.seconds,
        "time/decode_s": sampler.seconds_decode,
        "time/prefill_s": sampler.seconds_prefill,
        "time/env_wait_s": statistics.seconds_env_wait,
        "rate/decode_tokens_per_s": sampler.sampled / seconds,
        "rate/episodes_per_min": 60.0 * statistics.episodes / seconds,
        "rate/env_steps_per_s": statistics.turns / seconds,
    }
    return metrics


def _outcome_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Returns outcome metrics of the episodes; an empty dictionary if there are no episodes."""
    if not trajectories:
        return {}
    valid = [t for t in trajectories if t.outcome.is_valid]
    metrics = {
        "rollout/episodes": float(len(trajectories)),
        "rollout/invalid_fraction": 1.0 - len(valid) / len(trajectories),
    }
    if not valid:
        return metrics
    turns = np.array([len(t.turns) for t in valid], np.float64)
    actions = np.array([t.action_mask.sum() for t in valid], np.float64)
    tokens = np.array([t.num_tokens for t in valid], np.float64)
    rewards = np.array([t.reward for t in valid])
    total_actions, total_turns = max(1.0, actions.sum()), max(1.0, turns.sum())
    num_failed = sum(turn.is_failed for t in valid for turn in t.turns)
    return metrics | {
        "rollout/success": float(np.mean([t.success for t in valid])),
        "rollout/reward_mean": float(rewards.mean()),
        "rollout/reward_std": float(rewards.std()),
        "rollout/score_mean": float(np.mean([t.score for t in valid])),
        "rollout/truncation_rate": float(np.mean([t.outcome.is_truncated for t in valid])),
        "rollout/turns_mean": float(turns.mean()),
        "rollout/turns_max": float(turns.max()),
        "rollout/action_tokens_mean": float(actions.mean()),
        "rollout/action_tokens_per_turn": float(actions.sum() / total_turns),
        "rollout/tokens_mean": float(tokens.mean()),
        "rollout/tokens_max": float(tokens.max()),
        "rollout/failed_turn_fraction": float(num_failed / total_turns),
        "rollout/cut_turns": float(sum(turn.is_cut for t in valid for turn in t.turns)),
        "rollout/sampled_entropy": float(-sum(t.logprob_sum for t in valid) / total_actions),
    }


def _success_by_group(
    trajectories: Sequence[Trajectory], tasks: Sequence[Task], *, is_mixture: bool
) -> dict[str, float]:
    """Returns the success rate of every task group, such as a level."""
    successes: dict[str, list[bool]] = collections.defaultdict(list)
    group_size = len(trajectories) // len(tasks)
    for i, trajectory in enumerate(trajectories):
        if trajectory.outcome.is_valid:
            task = tasks[i // group_size]
            label = group_label(task.environment, task.group, is_mixture=is_mixture)
            successes[f"rollout/success/{label}"].append(trajectory.success)
    return {name: float(np.mean(values)) for name, values in successes.items()}


def horizon_metrics(limits: Sequence[TurnLimit], environments: Sequence[str]) -> dict[str, float]:
    """Returns the largest turn limit of a step; also mean and minimum if the limits may differ."""
    turns, is_mixture = [limit.turns for limit in limits], len(environments) > 1
    metrics = {"horizon/turns": float(max(turns))}
    if any(limit.place.group or limit.place.drawn for limit in limits):
        metrics["horizon/turns_mean"] = float(np.mean(turns))
        metrics["horizon/turns_min"] = float(min(turns))
    by_name: dict[str, list[int]] = collections.defaultdict(list)
    for limit in limits:
        environment, group = limit.place.environment, limit.place.group
        if is_mixture:
            by_name[add_environment("horizon/turns", environment)].append(limit.turns)
        if group:
            label = group_label(environment, group, is_mixture=is_mixture)
            by_name[f"horizon/turns/{label}"].append(limit.turns)
    return metrics | {name: float(max(own)) for name, own in by_name.items()}


def judge_metrics(
    trajectories: Sequence[Trajectory], statistics: CollectStatistics
) -> dict[str, float]:
    """Returns the scores of the judge, 0 to 1, and the cost of asking for them."""
    names = ("requests", "cached", "failed", "prompt_tokens", "completion_tokens", "cost")
    metrics = {f"judge/{name}": float(statistics.judge[name]) for name in names}
    metrics["time/judge_s"] = statistics.seconds_judge
    scores = [t.judge_score for t in trajectories if t.judge_score is not None]
    return metrics | ({"judge/score_mean": float(np.mean(scores))} if scores else {})


def resampling_metrics(
    is_informative: np.ndarray,
    kept: Sequence[Trajectory],
    sampled: Sequence[Trajectory],
    tasks_per_round: int,
) -> dict[str, float]:
    """Returns the cost of filling a step with informative groups, given all sampled groups."""
    num_sampled, num_kept = (
        sum(int(t.action_mask.sum()) for t in episodes) for episodes in (sampled, kept)
    )
    return {
        "rollout/rounds": len(is_informative) / tasks_per_round,
        "rollout/played_groups": float(len(is_informative)),
        "rollout/played_informative_groups": float(is_informative.sum()),
        "rollout/discarded_groups": float(len(is_informative) - tasks_per_round),
        "rollout/discarded_tokens": float(num_sampled - num_kept),
    }


def group_metrics(
    experience: Experience, tasks: Sequence[Task], environments: Sequence[str]
) -> dict[str, float]:
    """Returns the mean trained reward, and the numbers of groups with and without a signal.

    `tasks` are those of the groups. With several environments, each also has its own numbers.
    """
    episodes, informative_P = experience.episodes, experience.informative_P
    comparable_P = episodes.valid_B.reshape(-1, episodes.group_size).sum(axis=1) > 1

    def count(own_P: np.ndarray) -> dict[str, float]:
        return {
            "rollout/groups": float(own_P.sum()),
            "rollout/informative_groups": float((own_P & informative_P).sum()),
            "rollout/zero_variance_groups": float((own_P & comparable_P & ~informative_P).sum()),
        }

    spread = experience.advantage_BT[episodes.trained_BT]
    metrics = count(np.ones(len(tasks), bool))
    metrics["policy/advantage_std"] = float(spread.std()) if spread.size else 0.0
    if episodes.valid_B.any():
        returns = episodes.reward_BT[episodes.valid_B].sum(axis=1, dtype=np.float64)
        metrics["policy/trained_reward_mean"] = float(returns.mean())
    if len(environments) == 1:
        return metrics
    for name in environments:
        own_P = np.array([task.environment == name for task in tasks])
        if own_P.any():
            metrics |= {add_environment(k, name): v for k, v in count(own_P).items()}
    return metrics


def critic_metrics(experience: Experience) -> dict[str, float]:
    """Returns the accuracy of the critic over the action tokens of the valid episodes.

    `critic/explained_variance` is 1 - var(return - value) / var(return): 1 for perfect values, 0
    for a constant. It is 0 if all returns are equal.
    """
    if experience.return_BT is None:
        return {}
    mask_BT = experience.episodes.trained_BT
    returns = experience.return_BT[mask_BT].astype(np.float64)
    values = experience.episodes.value_BT[mask_BT].astype(np.float64)
    if not returns.size:
        return {}
    # Differences due to rounding count as zero; dividing by their variance would give a huge ratio.
    is_equal = np.ptp(returns) <= 1e-5 * np.abs(returns).max()
    explained = 0.0 if is_equal else 1.0 - (returns - values).var() / returns.var()
    return {
        "critic/value_mean": float(values.mean()),
        "critic/return_mean": float(returns.mean()),
        "critic/explained_variance": float(explained),
    }
