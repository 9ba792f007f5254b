"""Conversion of finished episodes to a training batch: rewards, advantages, weights, packing."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from agentgym_jax.algorithms import Algorithm, advantages, aggregation, shaping
from agentgym_jax.algorithms.episode_sums import Episodes
from agentgym_jax.episodes import batch as batching
from agentgym_jax.episodes.batch import TokenBatch
from agentgym_jax.episodes.trajectory import Outcome, TokenSource, Trajectory
from agentgym_jax.learner.turn_masks import turn_masks
from agentgym_jax.text.grammars import Grammars


def _judge_reward(t: Trajectory) -> float:
    """Returns the judge's score; 0, which has no effect, for an invalid episode without one."""
    if t.judge_score is None and t.outcome.is_valid:
        raise ValueError(f"{t.item_id}: no judge has scored this episode, so it has no reward")
    return t.judge_score or 0.0


JUDGE = "judge"  # value of `rollout.reward`: the score of a judge
NO_REWARD = "none"  # value of `rollout.reward`: only the divergence from the reference counts
# Rewards at the end of an episode; the best is 1.
REWARDS = {
    "success": lambda t: float(t.success),
    "score": lambda t: t.score * t.score_scale,
    JUDGE: _judge_reward,
    NO_REWARD: lambda t: 0.0,
}
TRUNCATIONS = ("fail", "mask", "bootstrap")
ZERO_VARIANCE = ("keep", "filter", "resample")


@dataclasses.dataclass(frozen=True)
class Experience:
    """Episodes of one step with their advantages, as NumPy arrays with one row per episode."""

    trajectories: Sequence[Trajectory]  # B episodes in task-major order
    episodes: Episodes  # rewards after all penalties, masks and values
    informative_B: np.ndarray  # bool, result of `advantages.informative_rows`
    counted_B: np.ndarray  # bool, True for episodes in the loss and its denominator
    advantage_BT: np.ndarray  # float32, zero except for action tokens of valid episodes
    return_BT: np.ndarray | None  # float32, the critic's target; None without a critic
    reference_logprobs: Sequence[np.ndarray] | None  # by episode; None if unknown

    @property
    def informative_P(self) -> np.ndarray:
        """Returns bool [P], True for informative groups (`advantages.informative_rows`)."""
        return np.any(self.informative_B.reshape(-1, self.episodes.group_size), axis=1)

    @property
    def mean_returns(self) -> dict[str, float]:
        """Returns the mean return by environment, for environments with a valid episode."""
        returns: dict[str, list[float]] = {}
        return_B = self.episodes.reward_BT.sum(axis=1, dtype=np.float64)
        for i in np.flatnonzero(self.episodes.valid_B).tolist():
            returns.setdefault(self.trajectories[i].environment, []).append(float(return_B[i]))
        return {name: float(np.mean(values)) for name, values in returns.items()}

    @property
    def reference_divergence(self) -> float | None:
        """Returns the mean of logprob - reference logprob over trained tokens; None if unknown."""
        if self.reference_logprobs is None:
            return None
        differences = [np.zeros(0, np.float32)]
        for i in np.flatnonzero(self.episodes.valid_B).tolist():
            t = self.trajectories[i]
            logprobs = t.load().logprobs
            differences.append((logprobs - self.reference_logprobs[i])[t.action_mask])
        values = np.concatenate(differences)
        return float(values.mean(dtype=np.float64)) if values.size else None


def token_rewards(
    trajectory: Trajectory,
    *,
    reward: str,
    failed_turn_penalty: float,
    parse_error_penalty: float = 0.0,
    overlong: Mapping[str, Any] | None = None,
    is_bootstrapped: bool = False,
) -> np.ndarray:
    """Returns the reward of each token, float32 [n].

    `reward` is `turn` for the environment's reward of each turn, or a key of REWARDS for a final
    reward. Rewards and penalties are on the last action token of the turn or of the episode.
    `overlong` has the arguments of `shaping.overlong_penalty`. With `is_bootstrapped` there is no
    final reward, because the critic's value after the last token already includes it.
    """
    if reward == "turn":
        rewards = trajectory.token_rewards()
    elif reward in REWARDS:
        rewards = np.zeros(trajectory.num_tokens, np.float32)
        if trajectory.turns and not is_bootstrapped:
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
    """Returns the anchor of each turn of each episode: a number for the state before the turn.

    Two turns of a group have the same anchor if the last observation of the state before them had
    the same text. Messages after failed turns and BabyAI's "No change in state." do not count, nor
    do turns of agent programs without an observation, such as summaries.
    """
    numbers: dict[str | None, int] = {}
    anchors: list[list[int]] = []
    for i, trajectory in enumerate(trajectories):
        if i % group_size == 0:
            numbers = {}
        state = trajectory.first_observation
        anchors.append([])
        for turn in trajectory.turns:
            anchors[-1].append(numbers.setdefault(state, len(numbers)))
            if turn.observation and not turn.is_failed and turn.shows_state:
                state = turn.observation
    return anchors


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
      algorithm: Value of `algorithms.ALGORITHMS`.
      group_size: Rollouts per task.
      max_tokens: T; constant over a run, so that one compiled program serves all steps. Episodes
        with several branches may be longer; T is then a multiple of it.
      truncation: Treatment of truncated episodes. `fail` keeps their rewards (arXiv:2509.08755);
        `mask` excludes them. `bootstrap` replaces the final reward of an episode cut by the turn
        limit with the critic's value after the last observation.
      advantage_options: Keyword arguments of the algorithm's advantage function.
      zero_variance: Treatment of groups that are not informative (`advantages.informative_rows`).
        `keep` counts them in the denominator of the loss; `filter` and `resample` do not.
      expected_returns: Baseline by environment; 0 for a missing environment.
      kl_coef: Coefficient of the penalty kl_coef * (logprob - reference logprob) per action token.
      reference_logprobs: Log-probabilities of every token under the reference, by episode; required
        unless kl_coef is 0.
      values_after: The critic's values after every token, by episode; None without a critic.
      **reward_options: Keyword arguments of `token_rewards`.
    """
    if truncation not in TRUNCATIONS:
        raise ValueError(f"rollout.truncation is {truncation!r}, expected one of {TRUNCATIONS}")
    if zero_variance not in ZERO_VARIANCE:
        raise ValueError(f"zero_variance is {zero_variance!r}, expected one of {ZERO_VARIANCE}")
    # An episode without turns has no sampled token, and its prompt may be longer than T.
    longest = max((t.num_tokens for t in trajectories if t.turns), default=1)
    shape = (len(trajectories), max_tokens * -(-longest // max_tokens))
    bootstrap_B = np.zeros(shape[0], np.float32)
    # On the host, NumPy arrays take the place of JAX's.
    arrays: dict[str, Any] = dict(
        reward_BT=np.zeros(shape, np.float32),
        action_mask_BT=np.zeros(shape, bool),
        valid_B=np.zeros(shape[0], bool),
        turn_BT=np.full(shape, -1, np.int32),
        anchor_BT=np.full(shape, -1, np.int32),
        value_BT=np.zeros(shape, np.float32),
        bootstrap_B=bootstrap_B,
    )
    episodes = Episodes(**arrays, group_size=group_size)
    anchors = turn_anchors(trajectories, group_size)
    for i, trajectory in enumerate(trajectories):
        if not trajectory.turns:
            continue
        n = trajectory.num_tokens
        is_bootstrapped = (
            truncation == "bootstrap"
            and trajectory.outcome is Outcome.HORIZON
            and trajectory.sources[-1] == TokenSource.OBSERVATION
        )
        rewards = token_rewards(trajectory, is_bootstrapped=is_bootstrapped, **reward_options)
        if kl_coef:
            assert reference_logprobs is not None, "kl_coef needs them"
            # estimator k1, zero off the action tokens
            divergence = trajectory.load().logprobs - reference_logprobs[i]
            rewards -= np.where(trajectory.action_mask, kl_coef * divergence, 0.0)
        episodes.reward_BT[i, :n] = rewards
        episodes.action_mask_BT[i, :n] = trajectory.action_mask
        for k, turn in enumerate(trajectory.turns):
            episodes.turn_BT[i, turn.action_start : turn.action_stop] = k
            episodes.anchor_BT[i, turn.action_start : turn.action_stop] = anchors[i][k]
        if expected_returns is not None and trajectory.environment in expected_returns:
            episodes.value_BT[i] = expected_returns[trajectory.environment]
        if values_after is not None:
            episodes.value_BT[i, 1:n] = values_after[i][:-1]
            if is_bootstrapped:
                bootstrap_B[i] = values_after[i][-1]
        is_masked = truncation == "mask" and trajectory.outcome.is_truncated
        episodes.valid_B[i] = trajectory.outcome.is_valid and not is_masked
    found = _compute_advantages(
        episodes,
        advantage=algorithm.advantage,
        value_target=algorithm.value_target,
        options=tuple(sorted(advantage_options.items())),
    )
    advantage_BT, return_BT, informative_B = jax.device_get(found)
    return Experience(
        trajectories=trajectories,
        episodes=episodes,
        informative_B=informative_B,
        counted_B=arrays["valid_B"] if zero_variance == "keep" else informative_B,
        advantage_BT=advantage_BT,
        return_BT=return_BT,
        reference_logprobs=reference_logprobs,
    )


@functools.partial(jax.jit, static_argnames=("advantage", "value_target", "options"))
def _compute_advantages(
    episodes: Episodes, *, advantage, value_target, options: tuple[tuple[str, Any], ...]
):
    advantage = functools.partial(advantage, **dict(options))
    return_BT = None if value_target is None else value_target(episodes, **dict(options))
    return advantage(episodes), return_BT, advantages.informative_rows(advantage, episodes)


def pack_experience(
    experience: Experience,
    rows: np.ndarray,
    *,
    aggregation_options: Mapping[str, Any],
    row_length: int,
    num_row_lengths: int,
    rows_multiple: int,
    keep_zero_advantage: bool,
    grammars: Grammars | None = None,
    own_rows: np.ndarray | None = None,
) -> TokenBatch | None:
    """Packs the episodes `rows` of an experience for one optimiser step.

    Weights are computed before episodes without a gradient are dropped, so dropping them changes no
    gradient. `keep_zero_advantage` keeps episodes whose advantages are all zero, because an entropy
    bonus, a divergence in the loss or a critic gives them a gradient. The row length is that of
    `batch.tightest_row_length`. Each branch of an episode is a sequence. Turns with a grammar need
    `grammars`, which replays their masks. `own_rows` is that of `batch.pack`. Returns None if no
    episode is left.
    """
    mask_BT, counted_B = experience.episodes.action_mask_BT[rows], experience.counted_B[rows]
    weight_BT = np.asarray(aggregation.token_weights(mask_BT, counted_B, **aggregation_options))
    sequences = []
    for i, row in enumerate(rows):
        trajectory = experience.trajectories[row]
        n = trajectory.num_tokens
        has_signal = keep_zero_advantage or bool(np.any(experience.advantage_BT[row]))
        if not counted_B[i] or not has_signal:
            continue
        sequence = {
            "action_mask": trajectory.action_mask,
            "weights": weight_BT[i, :n],
            "advantages": experience.advantage_BT[row, :n],
        }
        if experience.reference_logprobs is not None:
            sequence["reference_logprobs"] = experience.reference_logprobs[row]
        if experience.return_BT is not None:
            sequence["returns"] = experience.return_BT[row, :n]
            sequence["old_values"] = experience.episodes.value_BT[row, :n]
        for branch in trajectory.branches:
            part = {name: values[branch] for name, values in sequence.items()}
            load = functools.partial(_sampled_arrays, trajectory, branch, grammars)
            sequences.append(part | {"load": load})
    if not sequences:
        return None
    lengths = [len(sequence["action_mask"]) for sequence in sequences]
    T = batching.tightest_row_length(lengths, row_length, rows_multiple, num_row_lengths)
    if own_rows is not None and has_grammars(experience.trajectories):
        own_rows = np.ones_like(own_rows)  # the shape of all masks depends on all tokens
    return batching.pack(sequences, row_length=T, rows_multiple=rows_multiple, own_rows=own_rows)


def has_grammars(trajectories: Sequence[Trajectory]) -> bool:
    """Returns True if a grammar has restricted the tokens of a turn."""
    return any(turn.grammar for t in trajectories for turn in t.turns)


def _sampled_arrays(
    trajectory: Trajectory, branch: slice, grammars: Grammars | None
) -> dict[str, np.ndarray]:
    """Returns the arrays of a sequence that only the process of the episode has."""
    whole = trajectory.load()
    logprobs = whole.logprobs[branch]
    return {
        "tokens": whole.tokens[branch],
        "old_logprobs": logprobs,
        "sampler_logprobs": logprobs,
    } | turn_masks(whole, branch, grammars)


def mini_batch_rows(num_tasks: int, group_size: int, parts: int, seed: int) -> list[np.ndarray]:
    """Splits tasks (whole groups) randomly into `parts` mini-batches of episode indices."""
    order = np.arange(num_tasks)
    if parts > 1:
        order = np.random.default_rng(seed).permutation(num_tasks)
    return [
        (np.sort(tasks)[:, None] * group_size + np.arange(group_size)).reshape(-1)
        for tasks in np.split(order, parts)
    ]
