"""From finished episodes to a batch: rewards, validity, advantages, weights, packing."""

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
    # The environment's own score, brought to a unit in which 1 is the best.
    "score": lambda t: t.score * t.score_scale,
}
TRUNCATIONS = ("fail", "mask", "bootstrap")
ZERO_VARIANCE = ("keep", "filter", "resample")


@dataclasses.dataclass(frozen=True)
class Experience:
    """Episodes of one step with what training makes of them; one row an episode.

    Attributes:
      trajectories: B episodes, task-major.
      reward_BT: float32, NumPy; with everything that was taken off.
      action_mask_BT: bool.
      valid_B: bool, False for episodes that are left out of every statistic.
      informative_B: bool, the valid ones of groups with an advantage that is not zero.
      counted_B: bool, the valid ones that the loss and its denominator count.
      advantage_BT: float32, zero off the mask and on episodes that are left out.
      statistics: of the groups.
      reference_logprobs: by episode, if the reward needed them; else the loss asks for its own.
      value_BT: float32, what the critic expected before token t; None without a critic.
      return_BT: float32, what it should have expected, zero off the mask; None without a critic.
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
        """Mean over the valid episodes of each environment that has any."""
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
        """Mean of logprob - reference over the action tokens of the valid episodes, nats; None
        where it was not measured."""
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
    wasted_turn_penalty: float,
    unreadable_turn_penalty: float = 0.0,
    overlong: Mapping[str, Any] | None = None,
    goes_on: bool = False,
) -> np.ndarray:
    """Returns the reward of each token by the declared rule, float32 [n].

    `turn` is the environment's own reward per step, on the last action token of its turn;
    the keys of REWARDS put one number at the end. What a turn costs is taken off at the last
    action token of that turn, what the length costs at the last one of the episode.

    Args:
      trajectory: a finished episode.
      reward: `turn`, `success` or `score`.
      wasted_turn_penalty: of every turn that was wasted: unreadable or refused.
      unreadable_turn_penalty: of every turn without a readable action, on top of that.
      overlong: a kind of `shaping.OVERLONG` and its options; None for none.
      goes_on: the value of a critic stands for the rest of the episode. It expects the reward of
        the end, so a key of REWARDS pays nothing here: the running score would count twice.
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
            if turn.is_wasted:
                rewards[turn.action_stop - 1] -= wasted_turn_penalty
            if turn.action is None:
                rewards[turn.action_stop - 1] -= unreadable_turn_penalty
    if overlong is not None and trajectory.turns:
        rewards[trajectory.turns[-1].action_stop - 1] -= shaping.overlong_penalty(
            action_tokens=int(trajectory.action_mask.sum()),
            turns=len(trajectory.turns),
            **overlong,
        )
    return rewards


def turn_anchors(trajectories: Sequence[Trajectory], group_size: int) -> list[list[int]]:
    """Number of the state that each turn of each episode started from.

    Two turns of the same task have the same number if the agent had last been shown the same
    text. A wasted turn changes nothing, so the text before it stays: that an action was refused is
    no state of the world. The same holds for an answer that shows no state, such as BabyAI's "No
    change in state.".
    """
    numbers: dict[tuple[int, str], int] = {}
    anchors = []
    for i, trajectory in enumerate(trajectories):
        shown = _opening_text(trajectory)
        of_turns = []
        for turn in trajectory.turns:
            of_turns.append(numbers.setdefault((i // group_size, shown), len(numbers)))
            if not turn.is_wasted and turn.shows_state:
                shown = turn.observation
        anchors.append(of_turns)
    return anchors


def _opening_text(trajectory: Trajectory) -> str:
    """The first observation; of older records the last message before the agent spoke."""
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
    reward: str,
    wasted_turn_penalty: float,
    truncation: str,
    advantage_options: Mapping[str, Any],
    unreadable_turn_penalty: float = 0.0,
    overlong: Mapping[str, Any] | None = None,
    zero_variance: str = "keep",
    expected_returns: Mapping[str, float] | None = None,
    kl_coef: float = 0.0,
    reference_logprobs: Sequence[np.ndarray] | None = None,
    values_after: Sequence[np.ndarray] | None = None,
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
        solved in time is not solved); `mask` leaves cut episodes out; `bootstrap` takes the critic's
        value after the last observation of an episode cut by its horizon in place of the reward at
        the end.
      advantage_options: keyword arguments of the algorithm's advantage.
      unreadable_turn_penalty: taken off for every turn without a readable action.
      overlong: what the length of an episode costs (`token_rewards`).
      zero_variance: groups without an advantage but zero: `keep` counts them in the denominator of
        the loss; `filter` leaves them out, so that the informative ones weigh more; `resample`
        does so with those that remain after others were collected in their place.
      expected_returns: baseline by environment, known from earlier steps, for advantages that
        subtract one; an environment that is not there has 0.
      kl_coef: taken off the reward of every action token: kl_coef * (logprob - reference).
      reference_logprobs: by episode, of every token; needed unless kl_coef is 0.
      values_after: by episode, what the critic expects after every token; needed by algorithms
        with a critic.
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
            continue  # nothing was sampled: its prompt may even be longer than T
        n = len(trajectory.tokens)
        goes_on = truncation == "bootstrap" and _shows_what_is_next(trajectory)
        reward_BT[i, :n] = token_rewards(
            trajectory,
            reward=reward,
            wasted_turn_penalty=wasted_turn_penalty,
            unreadable_turn_penalty=unreadable_turn_penalty,
            overlong=overlong,
            goes_on=goes_on,
        )
        if kl_coef:
            divergence = trajectory.logprobs - reference_logprobs[i]  # k1, zero off the actions
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
    """Whether an episode that was cut by its horizon holds the observation after its last action.

    One that has no room left for it is worth what it got: the context is at its end.
    """
    is_cut = trajectory.outcome is Outcome.HORIZON
    return is_cut and trajectory.sources[-1] == TokenSource.OBSERVATION


@functools.lru_cache(maxsize=16)
def _compiled(advantage, value_target, options: tuple[tuple[str, Any], ...]):
    """Compiled once for the functions of an algorithm and their options."""

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
    row_halvings: int,
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
      row_length: T of the packed rows, at most.
      row_halvings: how often T may be halved where that leaves less padding.
      rows_multiple: rows are filled up to a multiple of this.
      keep_zero_advantage: keep episodes whose advantages are all zero; needed if an entropy
        bonus, a divergence in the loss or a critic gives them a gradient.

    Returns:
      The batch, or None if no episode has anything to train on.
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
    T = batching.tightest_row_length(lengths, row_length, rows_multiple, row_halvings)
    return batching.pack(sequences, row_length=T, rows_multiple=rows_multiple)


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
