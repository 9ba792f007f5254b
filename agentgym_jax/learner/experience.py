"""From finished episodes to a batch: rewards, validity, advantages, weights, packing."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from agentgym_jax import batch as batching
from agentgym_jax.algorithms import Algorithm, advantages, aggregation
from agentgym_jax.batch import TokenBatch
from agentgym_jax.trajectory import Trajectory

REWARDS = {
    # What an episode is worth for training, on the last action token of its last turn.
    "success": lambda t: float(t.success),
    # The environment's own score, brought to a unit in which 1 is the best.
    "score": lambda t: t.score * t.score_scale,
}
TRUNCATIONS = ("fail", "mask")


@dataclasses.dataclass(frozen=True)
class Experience:
    """Episodes of one step with what training makes of them; one row an episode.

    Attributes:
      trajectories: B episodes, task-major.
      reward_BT: float32, NumPy.
      action_mask_BT: bool.
      valid_B: bool, False for episodes that are left out.
      advantage_BT: float32, zero off the mask and on episodes that are left out.
      statistics: of the groups.
    """

    trajectories: Sequence[Trajectory]
    reward_BT: np.ndarray
    action_mask_BT: np.ndarray
    valid_B: np.ndarray
    advantage_BT: np.ndarray
    statistics: advantages.GroupStatistics


def token_rewards(trajectory: Trajectory, *, reward: str, wasted_turn_penalty: float) -> np.ndarray:
    """float32 [n]: reward of each token by the declared rule.

    `turn` is the environment's own reward per step, on the last action token of its turn;
    the keys of REWARDS put one number at the end. The penalty is taken off at the last action
    token of every turn that was wasted.
    """
    if reward == "turn":
        rewards = trajectory.token_rewards()
    elif reward in REWARDS:
        rewards = np.zeros(len(trajectory.tokens), np.float32)
        if trajectory.turns:
            rewards[trajectory.turns[-1].action_stop - 1] = REWARDS[reward](trajectory)
    else:
        raise ValueError(f"rollout.reward is {reward!r}, expected one of {['turn', *REWARDS]}")
    for turn in trajectory.turns:
        if turn.is_wasted and turn.action_stop > turn.action_start:
            rewards[turn.action_stop - 1] -= wasted_turn_penalty
    return rewards


def make_experience(
    trajectories: Sequence[Trajectory],
    *,
    algorithm: Algorithm,
    group_size: int,
    max_tokens: int,
    reward: str,
    wasted_turn_penalty: float,
    truncation: str,
    advantage_options: Mapping[str, Any],
) -> Experience:
    """Rewards and advantages of the episodes of one step.

    Args:
      trajectories: task-major, `group_size` episodes a task.
      algorithm: row of the table.
      group_size: rollouts per task.
      max_tokens: T; fixed over a run, so that one program serves all steps.
      reward: `turn`, `success` or `score`.
      wasted_turn_penalty: taken off the reward for every turn without an effect.
      truncation: `fail` takes the rewards of a cut episode as they are (the paper: not
        solved in time is not solved); `mask` leaves cut episodes out.
      advantage_options: keyword arguments of the algorithm's advantage.
    """
    if truncation not in TRUNCATIONS:
        raise ValueError(f"rollout.truncation is {truncation!r}, expected one of {TRUNCATIONS}")
    B = len(trajectories)
    reward_BT = np.zeros((B, max_tokens), np.float32)
    action_mask_BT = np.zeros((B, max_tokens), bool)
    valid_B = np.zeros(B, bool)
    for i, trajectory in enumerate(trajectories):
        n = len(trajectory.tokens)
        reward_BT[i, :n] = token_rewards(
            trajectory, reward=reward, wasted_turn_penalty=wasted_turn_penalty
        )
        action_mask_BT[i, :n] = trajectory.action_mask
        is_masked = truncation == "mask" and trajectory.outcome.is_truncated
        valid_B[i] = trajectory.outcome.is_valid and not is_masked and bool(trajectory.turns)
    advantage_BT, statistics = _advantages(
        algorithm.advantage, group_size, tuple(sorted(advantage_options.items()))
    )(reward_BT, action_mask_BT, valid_B)
    return Experience(
        trajectories=trajectories,
        reward_BT=reward_BT,
        action_mask_BT=action_mask_BT,
        valid_B=valid_B,
        advantage_BT=np.asarray(advantage_BT),
        statistics=jax.device_get(statistics),
    )


@functools.lru_cache(maxsize=16)
def _advantages(function, group_size: int, options: tuple[tuple[str, Any], ...]):
    """Compiled once for a function and its options."""

    def compute(reward_BT, action_mask_BT, valid_B):
        advantage_BT = function(
            reward_BT, action_mask_BT, valid_B, group_size=group_size, **dict(options)
        )
        statistics = advantages.group_statistics(reward_BT, valid_B, group_size=group_size)
        return advantage_BT, statistics

    return jax.jit(compute)


def pack_experience(
    experience: Experience,
    rows: np.ndarray,
    *,
    aggregation_options: Mapping[str, Any],
    row_length: int,
    rows_multiple: int,
    keep_zero_advantage: bool,
) -> TokenBatch | None:
    """Packs some episodes of an experience for one optimiser step.

    Weights are made over exactly these episodes, before anything is dropped or split, so
    leaving out what has no gradient changes no gradient.

    Args:
      experience: all episodes of the step.
      rows: int, which of them (a mini-batch).
      aggregation_options: keyword arguments of `aggregation.token_weights`.
      row_length: T of the packed rows.
      rows_multiple: rows are filled up to a multiple of this.
      keep_zero_advantage: keep episodes whose advantages are all zero; needed if an entropy
        bonus or a divergence in the loss gives them a gradient.

    Returns:
      The batch, or None if no episode has anything to train on.
    """
    mask_BT, valid_B = experience.action_mask_BT[rows], experience.valid_B[rows]
    weight_BT = np.asarray(aggregation.token_weights(mask_BT, valid_B, **aggregation_options))
    sequences = []
    for i, row in enumerate(rows):
        trajectory = experience.trajectories[row]
        n = len(trajectory.tokens)
        has_signal = keep_zero_advantage or bool(np.any(experience.advantage_BT[row]))
        if not valid_B[i] or not has_signal:
            continue
        sequences.append(
            {
                "tokens": trajectory.tokens,
                "action_mask": trajectory.action_mask,
                "weights": weight_BT[i, :n],
                "advantages": experience.advantage_BT[row, :n],
                "old_logprobs": trajectory.logprobs,
            }
        )
    if not sequences:
        return None
    return batching.pack(sequences, row_length=row_length, rows_multiple=rows_multiple)


def mini_batch_rows(num_tasks: int, group_size: int, parts: int, seed: int) -> list[np.ndarray]:
    """Splits tasks (whole groups) at random into `parts` mini-batches of episode indices."""
    if num_tasks % parts:
        raise ValueError(
            f"learner.mini_batches={parts} does not divide rollout.tasks_per_step={num_tasks}"
        )
    order = (
        np.random.default_rng(seed).permutation(num_tasks) if parts > 1 else np.arange(num_tasks)
    )
    return [
        (np.sort(tasks)[:, None] * group_size + np.arange(group_size)).reshape(-1)
        for tasks in np.split(order, parts)
    ]
