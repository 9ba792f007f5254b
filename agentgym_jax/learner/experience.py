"""Conversion of finished episodes to a training batch: rewards, validity, advantages, weights,
packing.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from agentgym_jax import batch as batching
from agentgym_jax.algorithms import Algorithm, advantages, aggregation, shaping
from agentgym_jax.algorithms.episodes import Episodes
from agentgym_jax.batch import TokenBatch
from agentgym_jax.trajectory import Outcome, TokenSource, Trajectory

REWARDS = {
    # Reward at the end of an episode, on the last action token of its last turn.
    "success": lambda t: float(t.success),
    # The environment's score is converted to a unit in which 1 is the best.
    "score": lambda t: t.score * t.score_scale,
}
TRUNCATIONS = ("fail", "mask", "bootstrap")
ZERO_VARIANCE = ("keep", "filter", "resample")


@dataclasses.dataclass(frozen=True)
class Experience:
    """Episodes of one step with their rewards and advantages. The arrays have one row per episode.

    Attributes:
      trajectories: B episodes in task-major order.
      reward_BT: float32 NumPy array of rewards after all penalties.
      action_mask_BT: bool, True for sampled tokens.
      valid_B: bool, False for episodes that all statistics leave out.
      informative_B: bool, True for valid episodes in groups with a nonzero advantage.
      counted_B: bool, True for valid episodes that are included in the loss and its denominator.
      advantage_BT: float32; zero for tokens off the mask and for episodes left out of the loss.
      statistics: Statistics of the groups.
      reference_logprobs: Log-probabilities under the reference by episode, if the reward needed
        them. If None, the loss computes them.
      value_BT: float32, the critic's value before each token; None without a critic.
      return_BT: float32, the critic's target, zero off the action mask; None without a critic.
    """

    trajectories: Sequence[Trajectory]
    reward_BT: np.ndarray
    action_mask_BT: np.ndarray
    valid_B: np.ndarray
    informative_B: np.ndarray
    counted_B: np.ndarray
    advantage_BT: np.ndarray
    statistics: advantages.GroupStatistics
    reference_logprobs: Sequence[np.ndarray] | None
    value_BT: np.ndarray | None = None
    return_BT: np.ndarray | None = None

    @property
    def mean_returns(self) -> dict[str, float]:
        """Mean return of the valid episodes by environment; an environment without a valid episode
        is absent.
        """
        returns: dict[str, list[float]] = {}
        of_all = self.reward_BT.sum(axis=1, dtype=np.float64)
        for trajectory, value, is_valid in zip(
            self.trajectories, of_all, self.valid_B, strict=True
        ):
            if is_valid:
                returns.setdefault(trajectory.environment, []).append(value)
        return {name: float(np.mean(values)) for name, values in returns.items()}

    @property
    def reference_divergence(self) -> float | None:
        """Mean of (logprob - reference logprob) over the action tokens of the valid episodes, in
        nats; None if not measured.
        """
        if self.reference_logprobs is None:
            return None
        differences = [
            (t.logprobs - reference)[t.action_mask]
            for t, reference, is_valid in zip(
                self.trajectories, self.reference_logprobs, self.valid_B, strict=True
            )
            if is_valid
        ]
        values = np.concatenate([np.zeros(0, np.float32), *differences])
        return float(values.mean(dtype=np.float64)) if values.size else None


def token_rewards(
    trajectory: Trajectory,
    *,
    reward: str,
    failed_turn_penalty: float,
    parse_error_penalty: float = 0.0,
    overlong: Mapping[str, Any] | None = None,
    goes_on: bool = False,
) -> np.ndarray:
    """Returns the reward of each token, float32 [n], by the configured rule.

    `turn` places the environment's reward for a step on the last action token of its turn. The keys
    of REWARDS give a single reward at the end. Turn penalties are subtracted at the last action
    token of the penalised turn, the length penalty at the last action token of the episode.

    Args:
      trajectory: A finished episode.
      reward: `turn`, `success` or `score`.
      failed_turn_penalty: Penalty of every failed turn: a parse error or a rejected action.
      parse_error_penalty: Additional penalty of every turn with a parse error.
      overlong: A kind of `shaping.OVERLONG` and its options; None for none.
      goes_on: True if a critic's value replaces the rest of the episode. A key of REWARDS then
        gives no reward, because that value already includes the final reward, which would be
        counted twice.
    """
    if reward == "turn":
        rewards = trajectory.token_rewards()
    elif reward in REWARDS:
        rewards = np.zeros(len(trajectory.tokens), np.float32)
        if trajectory.turns and not goes_on:
            rewards[trajectory.turns[-1].action_stop - 1] = REWARDS[reward](trajectory)
    else:
        raise ValueError(f"rollout.reward is {reward!r}, expected one of {['turn', *REWARDS]}")
    for turn in trajectory.turns:
        if turn.action_stop > turn.action_start:
            if turn.is_failed:
                rewards[turn.action_stop - 1] -= failed_turn_penalty
            if turn.action is None:
                rewards[turn.action_stop - 1] -= parse_error_penalty
    if overlong is not None and trajectory.turns:
        rewards[trajectory.turns[-1].action_stop - 1] -= shaping.overlong_penalty(
            action_tokens=int(trajectory.action_mask.sum()),
            turns=len(trajectory.turns),
            **overlong,
        )
    return rewards


def turn_anchors(trajectories: Sequence[Trajectory], group_size: int) -> list[list[int]]:
    """Returns for each turn of each episode the number of the state from which the turn started.

    Two turns of the same task have the same number if the last state text before them was the same.
    A failed turn does not change the state, and a rejection message is not a state. The turn after
    a failed turn therefore has the same number as the failed turn. The same holds for an answer
    that shows no state, such as BabyAI's "No change in state.".
    """
    numbers: dict[tuple[int, str], int] = {}
    anchors = []
    for i, trajectory in enumerate(trajectories):
        shown = _opening_text(trajectory)
        of_turns = []
        for turn in trajectory.turns:
            of_turns.append(numbers.setdefault((i // group_size, shown), len(numbers)))
            if not turn.is_failed and turn.shows_state:
                shown = turn.observation
        anchors.append(of_turns)
    return anchors


def _opening_text(trajectory: Trajectory) -> str:
    """Returns the first observation; for records of older runs, the last message before the agent's
    first message.
    """
    if trajectory.first_observation is not None:
        return trajectory.first_observation
    text = ""
    for message in trajectory.messages:
        if message["role"] == "assistant":
            break
        text = message["content"]
    return text


def make_experience(
    trajectories: Sequence[Trajectory],
    *,
    algorithm: Algorithm,
    group_size: int,
    max_tokens: int,
    truncation: str,
    advantage_options: Mapping[str, Any],
    zero_variance: str = "keep",
    expected_returns: Mapping[str, float] | None = None,
    kl_coef: float = 0.0,
    reference_logprobs: Sequence[np.ndarray] | None = None,
    values_after: Sequence[np.ndarray] | None = None,
    **reward_options: Any,
) -> Experience:
    """Computes rewards and advantages of the episodes of one step.

    Args:
      trajectories: Episodes in task-major order, `group_size` per task.
      algorithm: Row of the table of algorithms.
      group_size: Rollouts per task.
      max_tokens: T; constant over a run, so that one program serves all steps.
      truncation: Treatment of cut episodes. `fail` keeps their rewards (in the paper, a task not
        solved in time is unsolved). `mask` leaves cut episodes out. `bootstrap` replaces the final
        reward of an episode cut by its horizon: the critic's value after the last observation is
        used instead.
      advantage_options: Keyword arguments of the algorithm's advantage function.
      zero_variance: Treatment of groups whose advantages are all zero. `keep` counts them in the
        denominator of the loss. `filter` leaves them out, so that informative groups weigh more.
        `resample` filters the groups that are still uninformative after resampling.
      expected_returns: Baseline by environment from earlier steps, for advantages that subtract a
        baseline; 0 for a missing environment.
      kl_coef: Coefficient of the penalty kl_coef * (logprob - reference logprob) on the reward of
        every action token.
      reference_logprobs: Log-probabilities of every token under the reference, by episode; required
        unless kl_coef is 0.
      values_after: The critic's values after every token, by episode; required by algorithms with a
        critic.
      **reward_options: Keyword arguments of `token_rewards`.
    """
    if truncation not in TRUNCATIONS:
        raise ValueError(f"rollout.truncation is {truncation!r}, expected one of {TRUNCATIONS}")
    if zero_variance not in ZERO_VARIANCE:
        raise ValueError(
            f"algorithm.zero_variance is {zero_variance!r}, expected one of {ZERO_VARIANCE}"
        )
    shape = (len(trajectories), max_tokens)
    reward_BT = np.zeros(shape, np.float32)
    action_mask_BT = np.zeros(shape, bool)
    turn_BT, anchor_BT = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
    value_BT, bootstrap_B = np.zeros(shape, np.float32), np.zeros(shape[0], np.float32)
    valid_B = np.zeros(shape[0], bool)
    anchors = turn_anchors(trajectories, group_size)
    for i, trajectory in enumerate(trajectories):
        if not trajectory.turns:
            continue  # no token was sampled, and the prompt may even be longer than T
        n = len(trajectory.tokens)
        goes_on = truncation == "bootstrap" and _shows_what_is_next(trajectory)
        reward_BT[i, :n] = token_rewards(trajectory, goes_on=goes_on, **reward_options)
        if kl_coef:
            # estimator k1, zero off the action tokens
            divergence = trajectory.logprobs - reference_logprobs[i]
            reward_BT[i, :n] -= np.where(trajectory.action_mask, kl_coef * divergence, 0.0)
        action_mask_BT[i, :n] = trajectory.action_mask
        for k, turn in enumerate(trajectory.turns):
            turn_BT[i, turn.action_start : turn.action_stop] = k
            anchor_BT[i, turn.action_start : turn.action_stop] = anchors[i][k]
        if expected_returns is not None and trajectory.environment in expected_returns:
            value_BT[i] = expected_returns[trajectory.environment]
        if values_after is not None:
            value_BT[i, 1:n] = values_after[i][:-1]
            if goes_on:
                bootstrap_B[i] = values_after[i][-1]
        is_masked = truncation == "mask" and trajectory.outcome.is_truncated
        valid_B[i] = trajectory.outcome.is_valid and not is_masked
    episodes = Episodes(
        reward_BT=reward_BT,
        action_mask_BT=action_mask_BT,
        valid_B=valid_B,
        turn_BT=turn_BT,
        anchor_BT=anchor_BT,
        value_BT=value_BT,
        group_size=group_size,
        bootstrap_B=bootstrap_B,
    )
    compute = _compiled(
        algorithm.advantage, algorithm.value_target, tuple(sorted(advantage_options.items()))
    )
    advantage_BT, return_BT, informative_B, statistics = jax.device_get(compute(episodes))
    return Experience(
        trajectories=trajectories,
        reward_BT=reward_BT,
        action_mask_BT=action_mask_BT,
        valid_B=valid_B,
        informative_B=informative_B,
        counted_B=valid_B if zero_variance == "keep" else informative_B,
        advantage_BT=advantage_BT,
        statistics=statistics,
        reference_logprobs=reference_logprobs,
        value_BT=value_BT if algorithm.needs_critic else None,
        return_BT=return_BT,
    )


def _shows_what_is_next(trajectory: Trajectory) -> bool:
    """Returns True if an episode cut by its horizon contains the observation after its last action.

    If the context has no room for that observation, the episode keeps its reward.
    """
    is_cut = trajectory.outcome is Outcome.HORIZON
    return is_cut and trajectory.sources[-1] == TokenSource.OBSERVATION


@functools.lru_cache(maxsize=16)
def _compiled(advantage, value_target, options: tuple[tuple[str, Any], ...]):
    """Compiles the advantage and value-target functions, once for all calls with the same options."""

    bound = functools.partial(advantage, **dict(options))

    def compute(episodes: Episodes):
        return (
            bound(episodes),
            None if value_target is None else value_target(episodes, **dict(options)),
            advantages.informative_rows(bound, episodes),
            advantages.group_statistics(bound, episodes),
        )

    return jax.jit(compute)


def pack_experience(
    experience: Experience,
    rows: np.ndarray,
    *,
    aggregation_options: Mapping[str, Any],
    row_length: int,
    num_row_lengths: int,
    rows_multiple: int,
    keep_zero_advantage: bool,
) -> TokenBatch | None:
    """Packs the selected episodes of an experience for one optimiser step.

    Weights are computed over all selected episodes, before any episode is dropped or split. Leaving
    out tokens without a gradient therefore changes no gradient. `keep_zero_advantage` keeps
    episodes whose advantages are all zero. It is needed if an entropy bonus, a divergence in the
    loss or a critic gives these episodes a gradient.

    `rows` are the indices of the selected episodes, a mini-batch. The row length is that of
    `batch.tightest_row_length`. Returns None if no episode has a token to train on.
    """
    mask_BT, counted_B = experience.action_mask_BT[rows], experience.counted_B[rows]
    weight_BT = np.asarray(aggregation.token_weights(mask_BT, counted_B, **aggregation_options))
    sequences = []
    for i, row in enumerate(rows):
        trajectory = experience.trajectories[row]
        n = len(trajectory.tokens)
        has_signal = keep_zero_advantage or bool(np.any(experience.advantage_BT[row]))
        if not counted_B[i] or not has_signal:
            continue
        sequence = {
            "tokens": trajectory.tokens,
            "action_mask": trajectory.action_mask,
            "weights": weight_BT[i, :n],
            "advantages": experience.advantage_BT[row, :n],
            "old_logprobs": trajectory.logprobs,
        }
        if experience.reference_logprobs is not None:
            sequence["reference_logprobs"] = experience.reference_logprobs[row]
        if experience.value_BT is not None and experience.return_BT is not None:
            sequence["returns"] = experience.return_BT[row, :n]
            sequence["old_values"] = experience.value_BT[row, :n]
        sequences.append(sequence)
    if not sequences:
        return None
    lengths = [len(sequence["tokens"]) for sequence in sequences]
    T = batching.tightest_row_length(lengths, row_length, rows_multiple, num_row_lengths)
    return batching.pack(sequences, row_length=T, rows_multiple=rows_multiple)


def mini_batch_rows(num_tasks: int, group_size: int, parts: int, seed: int) -> list[np.ndarray]:
    """Splits tasks (whole groups) randomly into `parts` mini-batches of episode indices."""
    if num_tasks % parts:
        raise ValueError(
            f"learner.mini_batches={parts} does not divide rollout.tasks_per_step={num_tasks}"
        )
    order = np.arange(num_tasks)
    if parts > 1:
        order = np.random.default_rng(seed).permutation(num_tasks)
    return [
        (np.sort(tasks)[:, None] * group_size + np.arange(group_size)).reshape(-1)
        for tasks in np.split(order, parts)
    ]
