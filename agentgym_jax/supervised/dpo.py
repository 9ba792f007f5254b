"""Job `dpo`: direct preference optimisation on pairs of whole conversations."""

import dataclasses
import functools
import hashlib
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import jax
import numpy as np
from absl import logging

from agentgym_jax.checks.limits import OneOf, Range
from agentgym_jax.config.sections import ConfigError, call, config_errors
from agentgym_jax.config.settings import Count, RecordedDataSettings
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.encoding import encode
from agentgym_jax.data.pipeline import truncate
from agentgym_jax.data.preferences import Preference, pair_up, read_preferences
from agentgym_jax.episodes import batch as batching
from agentgym_jax.episodes.batch import TokenBatch
from agentgym_jax.jobs.environments import Environments
from agentgym_jax.jobs.job import Parts, open_job
from agentgym_jax.jobs.run import Run, StopRequested
from agentgym_jax.jobs.sampled_agents import check_held_out
from agentgym_jax.jobs.scoring import score_sequences
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.preference import (
    LOSSES,
    Member,
    PreferenceBatch,
    make_preference_update,
    pack_pairs,
    put_pairs,
)
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import make_score, put_scalar
from agentgym_jax.mesh import processes
from agentgym_jax.mesh.sharding import to_host
from agentgym_jax.runs.atomic_files import disk_errors, replacing
from agentgym_jax.supervised import supervised_loop
from agentgym_jax.supervised.imitation_data import load_conversations
from agentgym_jax.supervised.supervised_loop import Metrics, SupervisedSettings, step_metrics
from agentgym_jax.text.chat import ChatRenderer, EncodedConversation

_SCORE_CHUNK = 256  # number of conversations packed together for scoring


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpoSettings(RecordedDataSettings):
    """Section `dpo`: preferences between episodes of the same task.

    Attributes:
      pairs: Pairs per optimiser step.
      micro_rows: Number of packed rows whose gradient is computed together; they hold whole pairs.
      loss: Preference loss: `sigmoid` (DPO) or `ipo`.
      beta: Strength of the pull towards the reference, which is the initial policy.
      likelihood_coef: Weight of minus the mean log-probability of the chosen conversation's tokens in
        the loss, which works against its fall (arXiv:2404.19733).
      length_normalised: Uses the mean of a conversation's token log-probabilities, not the sum.
      preferences: Files of ready-made pairs (data/preferences.py).
      pairing: Options that select pairs of episodes (section `dpo.pairing`).
    """

    section = "dpo"

    pairs: Count
    micro_rows: Annotated[int, Range(2)]
    loss: Annotated[str, OneOf(LOSSES)]
    beta: Annotated[float, Range(above=0)]
    likelihood_coef: Annotated[float, Range(0)] = 0.0
    length_normalised: bool
    preferences: tuple[str, ...]
    pairing: Mapping[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        call(pair_up, "dpo.pairing", self.pairing, conversations=(), seed=0)
        if not (self.preferences or self.files or self.demonstrations):
            raise ValueError("give preferences, files or demonstrations: there is nothing to pair")


Settings = SupervisedSettings[DpoSettings]
DpoParts = Parts[Settings, list[Preference]]


parse = functools.partial(supervised_loop.parse, kind=DpoSettings)


def _load(
    run: Run, settings: Settings, environments: Environments | None
) -> tuple[list[Preference], list[Conversation]]:
    episodes = load_conversations(settings.learning, run.folder, environments, run.console.phase)
    preferences = load_preferences(settings.learning, episodes, seed=run.seed)
    run.console.note(f"{len(preferences)} preference pairs")
    sides = [side for pair in preferences for side in (pair.chosen, pair.rejected)]
    check_held_out(environments, sides)
    return preferences, sides


open_dpo = functools.partial(open_job, parse=parse, load=_load)


def load_preferences(
    settings: DpoSettings, episodes: Sequence[Conversation], *, seed: int
) -> list[Preference]:
    """Returns the pairs of the files, followed by pairs made from the episodes."""
    preferences: list[Preference] = []
    for path in settings.preferences:
        with config_errors("config.dpo.preferences: ", OSError):
            preferences += read_preferences(path, bad=settings.bad)
    made, statistics = pair_up(episodes, **settings.pairing, seed=seed)
    if episodes:
        logging.info("pairs of episodes: %s", statistics)
    if not preferences and not made:
        raise ConfigError(
            f"config.dpo: there is no pair to learn from ({statistics}). Two episodes of one task "
            "with the same prompt are needed, one of at least pairing.threshold and one that is "
            "pairing.gap below it"
        )
    return preferences + made


def train(run: Run, parts: DpoParts) -> None:
    """Trains until `run.total_steps`; `supervised_loop.fit` lists the errors."""
    settings, model = parts.settings.learning, parts.model
    layout, chunk = model.layout, parts.settings.logprob_chunk
    optimizer = make_optimizer(**settings.optimizer, total_steps=settings.steps)
    encoded = encode_pairs(parts.data, model.renderer, settings)
    members = [
        Member(side.tokens, side.action_mask, logprobs)
        for side, logprobs in zip(encoded, _reference_logprobs(run, parts, encoded), strict=True)
    ]
    pairs = list(zip(members[::2], members[1::2], strict=True))
    update = make_preference_update(
        model.policy,
        optimizer,
        LOSSES[settings.loss],
        beta=settings.beta,
        logprob_chunk=chunk,
        likelihood_coef=settings.likelihood_coef,
        layout=layout,
        adapters=model.adapters,
    )

    def take_step(state: TrainState, step: int, grad_limit: float) -> tuple[TrainState, Metrics]:
        started = time.perf_counter()
        chosen = _pairs_of_step(len(pairs), step, per_step=settings.pairs, seed=run.seed)
        batch = pack_pairs(
            [pairs[i] for i in chosen],
            row_length=settings.row_length,
            micro_rows=settings.micro_rows,
            length_normalised=settings.length_normalised,
        )
        packed = time.perf_counter()
        limit = put_scalar(np.float32(grad_limit), layout)
        position = put_scalar(np.int32(step), layout)
        state, computed = update(state, put_pairs(batch, layout), limit, position, model.base)
        computed = jax.device_get(computed)
        metrics = step_metrics(
            computed, batch.tokens, settings, step, started=started, packed=packed
        )
        epoch = (step + 1) * settings.pairs / len(pairs)
        return state, metrics | _preference_metrics(computed, batch) | {"dpo/epoch": epoch}

    supervised_loop.fit(run, parts, optimizer, take_step)


def encode_pairs(
    preferences: Sequence[Preference], renderer: ChatRenderer, settings: DpoSettings
) -> list[EncodedConversation]:
    """Returns the pairs whose two conversations fit a row: chosen, rejected, chosen, ..."""
    encoded: list[EncodedConversation] = []
    too_long = equal = 0
    for preference in preferences:
        sides = (preference.chosen, preference.rejected)
        with config_errors("config.dpo: "):
            sequences = encode(sides, renderer, {}, train_on="actions")
        if len(sequences) > len(sides):
            raise ConfigError(
                f"config.dpo: a conversation on {preference.chosen.item_id} is not one sequence of "
                "tokens, because the chat template removes the thinking of earlier answers, or "
                "because its trace has branches. Remove the thinking, or leave the conversation out"
            )
        chosen, rejected = sequences
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
            equal += 1  # truncated before an answer, or before the two conversations differ
            continue
        encoded += [chosen, rejected]
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
            f"config.dpo.row_length={settings.row_length}, {equal} have nothing to compare; "
            + ("raise it" if too_long else "both sides need different answers")
        )
    return encoded


def _pairs_of_step(count: int, step: int, *, per_step: int, seed: int) -> list[int]:
    """Returns the indices of the pairs of a step; each epoch is a permutation of all pairs."""
    chosen = []
    for position in range(step * per_step, (step + 1) * per_step):
        epoch, place = divmod(position, count)
        chosen.append(int(np.random.default_rng([seed, epoch]).permutation(count)[place]))
    return chosen


def _reference_logprobs(
    run: Run, parts: DpoParts, members: Sequence[EncodedConversation]
) -> list[np.ndarray]:
    """Returns the initial policy's log-probability of every token, one array per conversation.

    The log-probabilities are computed once; the run folder keeps them for a resumed run.
    """
    path = run.folder.reference / f"{_digest(members)}.npy"
    is_known = processes.broadcast(path.exists())
    if not is_known or run.checkpoints.newest is None:  # this start reads the initial weights
        parts.model.pin(run.folder)
    if is_known:
        lengths = [len(member.tokens) for member in members]
        return np.split(np.load(path, allow_pickle=False), np.cumsum(lengths)[:-1])
    settings, model = parts.settings.learning, parts.model
    chunk = parts.settings.logprob_chunk
    score = make_score(model.policy, temperature=1.0, logprob_chunk=chunk, layout=model.layout)
    params = model.attach(model.initial_params())

    def score_batch(batch: TokenBatch) -> np.ndarray:
        if run.should_stop.agreed():
            raise StopRequested("stopped before the first step; the reference is computed again")
        return to_host(score(params, batch)[0])

    found: list[np.ndarray] = []
    for start in range(0, len(members), _SCORE_CHUNK):
        run.console.phase("reference log-probabilities", start, len(members))
        some = members[start : start + _SCORE_CHUNK]
        found += score_sequences(
            score_batch,
            [{"tokens": m.tokens, "action_mask": m.action_mask} for m in some],
            row_length=settings.row_length,
            micro_rows=settings.micro_rows,
            layout=model.layout,
        )
    if processes.is_writer():
        _save(path, np.concatenate(found))
        run.folder.push()
    return found


def _save(path: pathlib.Path, values: np.ndarray) -> None:
    """Writes the array to the file atomically."""
    with disk_errors(path):
        path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, values)
        file.flush()
        os.fsync(file.fileno())


def _digest(members: Sequence[EncodedConversation]) -> str:
    """Returns a hash of tokens and masks, so that different data never share a reference file."""
    digest = hashlib.sha256()
    for member in members:
        digest.update(len(member.tokens).to_bytes(8, "little"))
        digest.update(member.tokens.tobytes())
        digest.update(member.action_mask.tobytes())
    return digest.hexdigest()[:32]


def _preference_metrics(computed: Mapping[str, Any], batch: PreferenceBatch) -> Metrics:
    used = int((batch.pair_weights != 0).any(axis=1).sum())
    rows = jax.tree.map(lambda x: x[:used], batch.tokens)
    policy = ("grad_norm", "skipped", "nonfinite")
    return {
        **{f"dpo/{k}": float(v) for k, v in computed.items() if k not in policy},
        "dpo/pairs": float((batch.pair_weights != 0).sum()),
        "batch/padding_share": batching.padding_share(rows),
        "batch/action_tokens": float(batch.tokens.action_mask.sum()),
    }
