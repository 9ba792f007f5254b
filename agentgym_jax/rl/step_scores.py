"""Scores of a training step: log-probabilities under the policy or a reference, critic values."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from agentgym_jax.episodes import batch as batching
from agentgym_jax.episodes.batch import TokenBatch
from agentgym_jax.episodes.trajectory import Trajectory
from agentgym_jax.jobs.after_step import Metrics
from agentgym_jax.jobs.run import LoopState
from agentgym_jax.jobs.scoring import put_micro_batches, score_micro_batches, score_sequences
from agentgym_jax.learner.experience import Experience, has_grammars
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.turn_masks import turn_masks
from agentgym_jax.mesh import processes
from agentgym_jax.mesh.sharding import to_host
from agentgym_jax.models.policy import Params
from agentgym_jax.rl.build import RLParts
from agentgym_jax.text.grammars import Grammars


def reference_logprobs(
    parts: RLParts, reference: Params, trajectories: Sequence[Trajectory]
) -> list[np.ndarray]:
    """Returns the reference's log-probabilities, one array per episode; 0 except on actions."""
    return _score_episodes(parts, _score_reference(parts, reference), trajectories)


def _score_reference(parts: RLParts, reference: Params) -> Callable[[TokenBatch], jax.Array]:
    """Returns the function that computes the reference's log-probabilities."""
    if parts.teacher is not None:
        score = parts.teacher.score
        return lambda batch: score(reference, batch)[0]
    params = parts.model.attach(reference)
    return lambda batch: parts.score(params, batch)[0]


def critic_values(
    parts: RLParts, state: TrainState, trajectories: Sequence[Trajectory]
) -> list[np.ndarray] | None:
    """Returns the critic's value after every token by episode; None without a critic."""
    if parts.critic is None or state.critic is None:
        return None
    score, params = parts.critic.score, state.critic.params
    policy_params = parts.model.attach(state.params)
    return _score_episodes(parts, lambda batch: score(policy_params, params, batch), trajectories)


def score_batch(
    parts: RLParts,
    state: TrainState,
    reference: Params | None,
    packed: TokenBatch,
    seed: Sequence[int] = (0,),
) -> TokenBatch:
    """Returns micro-batches with the log-probabilities and marks that the loss needs.

    `reference` is None if no log-probabilities of the reference have to be computed. `seed`
    determines the random choice of marked tokens.
    """
    algorithm = parts.settings.algorithm
    batch = batching.micro_batches(packed, parts.settings.learner.micro_rows)
    if not algorithm.needs_scores and reference is None:
        return batch
    placed = put_micro_batches(batch, parts.model.layout)
    if reference is not None:
        scores = score_micro_batches(_score_reference(parts, reference), placed)
        batch = batching.with_arrays(batch, reference_logprobs=scores)
    if not algorithm.needs_scores:
        return batch
    params = parts.model.attach(state.params)
    learner = score_micro_batches(lambda one: parts.score(params, one)[0], placed)
    if algorithm.row.needs_marks:
        rng = np.random.default_rng(seed)
        batch = batching.with_arrays(
            batch, marked=_marked(parts.settings.marks, learner, batch, rng)
        )
    if algorithm.old_logprobs_from == "learner":
        sampler = np.asarray(batch.old_logprobs)
        if processes.count() > 1:  # those of the rows of all processes
            sampler = np.stack(to_host([one.old_logprobs for one in placed]))
        sequence = np.where(batch.action_mask, batch.sequence_ids, -1)
        factor = parts.settings.correction(learner, sampler, sequence)
        batch = batching.with_arrays(
            batch, old_logprobs=learner, advantages=factor * batch.advantages
        )
    return batch


def _marked(
    marks: Callable[..., np.ndarray],
    logprobs: np.ndarray,
    batch: TokenBatch,
    rng: np.random.Generator,
) -> np.ndarray:
    """Returns the marked tokens of a mini-batch; packing does not change which tokens these are."""
    places = np.flatnonzero(batch.action_mask)
    sequences, positions = (
        np.asarray(x).reshape(-1)[places] for x in (batch.sequence_ids, batch.positions)
    )
    places = places[np.lexsort((positions, sequences))]
    marked = np.zeros(batch.action_mask.size, bool)
    marked[places] = marks(
        logprobs.reshape(-1)[places], np.asarray(batch.advantages).reshape(-1)[places], rng
    )
    return marked.reshape(batch.action_mask.shape)


def gap_of_stale_weights(parts: RLParts, now: LoopState, experience: Experience) -> Metrics:
    """Returns the differences of sampler and learner under the weights that sampled the tokens.

    These are the newest tokens of a few episodes, as many as a micro-batch has rows.
    """
    trajectories = [t for t in experience.trajectories if t.action_mask.any()]
    newest = max(int(t.policy_versions[t.action_mask].max()) for t in trajectories)
    trajectories = [t for t in trajectories if newest in t.policy_versions[t.action_mask]]
    trajectories = trajectories[: parts.settings.learner.micro_rows]
    params = {update.version: update.weights for update in now.behaviour}[newest]
    if parts.model.adapters is not None:
        params = parts.model.attach(params)
    scores = _score_episodes(parts, lambda batch: parts.score(params, batch)[0], trajectories)
    gaps = [
        np.abs(score - t.load().logprobs)[t.action_mask & (t.policy_versions == newest)]
        for score, t in zip(scores, trajectories, strict=True)
    ]
    gap = np.concatenate(gaps)
    return {
        "policy/logprob_gap_mean": float(gap.mean()),
        "policy/logprob_gap_max": float(gap.max()),
    }


def _score_episodes(
    parts: RLParts, score: Callable[[TokenBatch], jax.Array], trajectories: Sequence[Trajectory]
) -> list[np.ndarray]:
    settings = parts.settings.learner
    # An episode without turns needs no scores, and its prompt may not fit a row.
    branches = [t.branches if t.turns else [slice(0, 1)] for t in trajectories]
    sequences: list[dict[str, Any]] = [
        {
            "action_mask": t.action_mask[branch],
            "load": functools.partial(_tokens, t, branch, parts.model.grammars),
        }
        for t, found in zip(trajectories, branches, strict=True)
        for branch in found
    ]
    scores = iter(
        score_sequences(
            score,
            sequences,
            row_length=batching.tightest_row_length(
                [len(sequence["action_mask"]) for sequence in sequences],
                settings.row_length,
                settings.micro_rows,
                settings.num_row_lengths,
            ),
            micro_rows=settings.micro_rows,
            layout=parts.model.layout,
            is_divided=not has_grammars(trajectories),
        )
    )
    return [np.concatenate([next(scores) for _ in found]) for found in branches]


def _tokens(t: Trajectory, branch: slice, grammars: Grammars | None) -> dict[str, np.ndarray]:
    whole = t.load()
    return {"tokens": whole.tokens[branch]} | turn_masks(whole, branch, grammars)
