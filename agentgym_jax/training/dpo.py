"""Direct preference optimisation on pairs of whole conversations; only the order of things."""

import hashlib
import os
import pathlib
import time
from collections.abc import Sequence

import jax
import numpy as np
from absl import logging

from agentgym_jax import batch as batching
from agentgym_jax.data.pipeline import truncate
from agentgym_jax.data.preferences import Preference
from agentgym_jax.learner.optimizer import make_optimizer, rate_of
from agentgym_jax.learner.pairs import Member, Pair, PreferenceBatch, pack_pairs
from agentgym_jax.learner.preference import (
    LOSSES,
    PreferenceUpdate,
    make_preference_update,
    put_pairs,
)
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import make_score, put_batch, put_limit, put_position
from agentgym_jax.run import conversations as supervised
from agentgym_jax.run.dpo import DPOParts, DpoSettings
from agentgym_jax.run.run import Run, StopRequested
from agentgym_jax.run.sections import ConfigError
from agentgym_jax.text.chat import ChatRenderer, EncodedConversation
from agentgym_jax.training import fitting

_SCORED_AT_ONCE = 256  # conversations that are packed together to be scored


def train(run: Run, parts: DPOParts) -> None:
    """The job `dpo`: trains until `run.total_steps`, resumes from the run folder.

    Raises:
      StopRequested: the run was asked to stop.
      ServerUnavailable, GuardStop: see `fitting.fit`.
    """
    settings, model = parts.settings.learning, parts.model
    optimizer = make_optimizer(**settings.optimizer, total_steps=settings.steps)
    encoded = encode_pairs(parts.data, model.renderer, settings)
    pairs = _with_reference(encoded, _reference(run, parts, encoded))
    update = make_preference_update(
        model.policy,
        optimizer,
        LOSSES[settings.loss],
        beta=settings.beta,
        logprob_chunk=parts.settings.logprob_chunk,
        layout=model.layout,
    )

    def take_step(
        state: TrainState, step: int, grad_limit: float
    ) -> tuple[TrainState, dict[str, float]]:
        return _step(parts, update, state, pairs, step, run.seed, grad_limit)

    fitting.fit(run, model, optimizer, take_step, parts.players, parts.settings.guards)


EncodedPair = tuple[EncodedConversation, EncodedConversation]


def encode_pairs(
    preferences: Sequence[Preference], renderer: ChatRenderer, settings: DpoSettings
) -> list[EncodedPair]:
    """Pairs as token ids whose conversations fit a row; what is left out is counted in the log.

    Raises:
      ConfigError: a conversation is too long under `error`, or nothing is left.
    """
    encoded: list[EncodedPair] = []
    too_long = equal = 0
    for preference in preferences:
        sides = (preference.chosen, preference.rejected)
        chosen, rejected = supervised.encode(sides, renderer, {}, train_on="actions")
        longest = max(len(chosen.tokens), len(rejected.tokens))
        if longest > settings.row_length:
            if settings.too_long == "error":
                raise ConfigError(
                    f"a conversation on {preference.chosen.item_id} has {longest} tokens, a row "
                    f"holds config.dpo.row_length={settings.row_length}. Raise it, or set "
                    "dpo.too_long to 'skip' or 'truncate'"
                )
            too_long += 1
            if settings.too_long == "skip":
                continue
            chosen, rejected = (truncate(s, settings.row_length) for s in (chosen, rejected))
        if not (chosen.action_mask.any() and rejected.action_mask.any()) or np.array_equal(
            chosen.tokens, rejected.tokens
        ):
            equal += 1  # cut before an answer, or before they differ
            continue
        encoded.append((chosen, rejected))
    if too_long or equal:
        logging.warning(
            "of %d pairs %d have a conversation longer than a row (%s), %d have nothing to compare",
            len(preferences),
            too_long,
            settings.too_long,
            equal,
        )
    if not encoded:
        raise ConfigError(
            f"none of {len(preferences)} pairs can be trained on: {too_long} are too long for "
            f"config.dpo.row_length={settings.row_length}, {equal} have nothing to compare"
        )
    return encoded


def pairs_of_step(count: int, step: int, *, per_step: int, seed: int) -> list[int]:
    """Indices of the pairs of a step: every pair once, in an order of its own, before any again."""
    chosen = []
    for position in range(step * per_step, (step + 1) * per_step):
        epoch, place = divmod(position, count)
        chosen.append(int(np.random.default_rng([seed, epoch]).permutation(count)[place]))
    return chosen


def _reference(run: Run, parts: DPOParts, encoded: Sequence[EncodedPair]) -> list[np.ndarray]:
    """Log-probabilities of every token under the policy at the start, of chosen and rejected in turn.

    Computed once and kept in the run folder: a resumed run reads them.
    """
    members = [side for pair in encoded for side in pair]
    path = run.folder.path / "reference" / f"{_digest(members)}.npy"
    lengths = [len(member.tokens) for member in members]
    if path.exists():
        return np.split(np.load(path, allow_pickle=False), np.cumsum(lengths)[:-1])
    settings, model = parts.settings.learning, parts.model
    chunk = parts.settings.logprob_chunk
    score = make_score(model.policy, temperature=1.0, logprob_chunk=chunk, layout=model.layout)
    params = model.initial_params(run.seed)
    found: list[np.ndarray] = []
    for start in range(0, len(members), _SCORED_AT_ONCE):
        run.console.phase("reference log-probabilities", start, len(members))
        some = members[start : start + _SCORED_AT_ONCE]
        packed = batching.pack(
            [{"tokens": m.tokens, "action_mask": m.action_mask} for m in some],
            row_length=settings.row_length,
            rows_multiple=settings.micro_rows,
        )
        rows = batching.micro_batches(packed, settings.micro_rows)
        values = []
        for m in range(rows.tokens.shape[0]):
            if run.should_stop():
                raise StopRequested(
                    "stopped before the first step; the reference is computed again"
                )
            one = put_batch(jax.tree.map(lambda x, m=m: x[m], rows), model.layout)
            values.append(jax.device_get(score(params, one)[0]))
        found += batching.unpack(np.stack(values), rows, len(some))
    _save(path, np.concatenate(found))
    return found


def _save(path: pathlib.Path, values: np.ndarray) -> None:
    """Whole or absent."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.save(file, values)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _digest(members: Sequence[EncodedConversation]) -> str:
    """Of all tokens and what is compared: other data asks for another reference."""
    digest = hashlib.sha256()
    for member in members:
        digest.update(len(member.tokens).to_bytes(8, "little"))
        digest.update(member.tokens.tobytes())
        digest.update(member.action_mask.tobytes())
    return digest.hexdigest()[:32]


def _with_reference(encoded: Sequence[EncodedPair], reference: Sequence[np.ndarray]) -> list[Pair]:
    members = [
        Member(side.tokens, side.action_mask, values)
        for side, values in zip((s for pair in encoded for s in pair), reference, strict=True)
    ]
    return list(zip(members[::2], members[1::2], strict=True))


def _step(
    parts: DPOParts,
    update: PreferenceUpdate,
    state: TrainState,
    pairs: Sequence[Pair],
    step: int,
    seed: int,
    grad_limit: float,
) -> tuple[TrainState, dict[str, float]]:
    started = time.perf_counter()
    settings = parts.settings.learning
    chosen = pairs_of_step(len(pairs), step, per_step=settings.pairs, seed=seed)
    batch = pack_pairs(
        [pairs[i] for i in chosen],
        row_length=settings.row_length,
        micro_rows=settings.micro_rows,
        length_normalised=settings.length_normalised,
    )
    packed = time.perf_counter()
    rate = rate_of(settings.optimizer, step, total_steps=settings.steps)
    layout = parts.model.layout
    limit, position = put_limit(grad_limit, layout), put_position(step, layout)
    state, device_metrics = update(state, put_pairs(batch, layout), limit, position)
    metrics = jax.device_get(device_metrics)
    ended = time.perf_counter()
    return state, _logged(metrics, batch) | {
        "dpo/epoch": (step + 1) * settings.pairs / len(pairs),
        "policy/learning_rate": rate,
        "rate/train_tokens_per_s": float((batch.tokens.segment_ids > 0).sum()) / (ended - packed),
        "time/data_s": packed - started,
        "time/update_s": ended - packed,
        "time/iteration_s": ended - started,
    }


def _logged(metrics: dict[str, np.ndarray], batch: PreferenceBatch) -> dict[str, float]:
    used = int((batch.pair_weights != 0).any(axis=1).sum())
    policy = ("grad_norm", "skipped", "nonfinite")
    return {
        **{f"dpo/{k}": float(v) for k, v in metrics.items() if k not in policy},
        **{f"policy/{k}": float(metrics[k]) for k in policy},
        "policy/grad_norm_max": float(metrics["grad_norm"]),
        "dpo/pairs": float((batch.pair_weights != 0).sum()),
        "batch/padding_share": batching.padding_share(
            jax.tree.map(lambda x: x[:used], batch.tokens)
        ),
        "batch/tokens": float((batch.tokens.segment_ids > 0).sum()),
        "batch/action_tokens": float(batch.tokens.action_mask.sum()),
    }
