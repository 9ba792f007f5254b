"""Job `dpo`: direct preference optimisation on pairs of whole conversations."""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import jax
import numpy as np
from absl import logging

from agentgym_jax import batch as batching
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.encoding import encode
from agentgym_jax.data.pipeline import truncate
from agentgym_jax.data.preferences import Preference, pair_up, read_preferences
from agentgym_jax.jobs import supervised_loop
from agentgym_jax.jobs.config.sections import ConfigError, call
from agentgym_jax.jobs.config.settings import Count, RecordedDataSettings
from agentgym_jax.jobs.conversations import load_conversations
from agentgym_jax.jobs.environments import Environments, task_lists
from agentgym_jax.jobs.job import Loaded
from agentgym_jax.jobs.run import Run, StopFlag, StopRequested
from agentgym_jax.jobs.supervised_loop import SupervisedParts, SupervisedSettings
from agentgym_jax.learner.optimizer import get_learning_rate, make_optimizer
from agentgym_jax.learner.preference import (
    LOSSES,
    Member,
    Pair,
    PreferenceBatch,
    PreferenceUpdate,
    make_preference_update,
    pack_pairs,
    put_pairs,
)
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import make_score, put_batch, put_limit, put_position
from agentgym_jax.limits import OneOf, Range
from agentgym_jax.text.chat import ChatRenderer, EncodedConversation

_SCORE_CHUNK = 256  # number of conversations packed together for scoring


@dataclasses.dataclass(frozen=True, kw_only=True)
class DpoSettings(RecordedDataSettings):
    """Section `dpo`: preferences between episodes of the same task.

    Attributes:
      pairs: Pairs per optimiser step.
      micro_rows: Number of packed rows whose gradient is computed together; no pair is divided
        between micro-batches.
      loss: Preference loss: `sigmoid` (DPO) or `ipo`.
      beta: Strength of the pull towards the reference, which is the initial policy.
      length_normalised: Uses the mean of the token log-probabilities as the log-probability of a
        conversation, not their sum.
      preferences: Files of ready-made pairs (data/preferences.py).
      pairing: Options that select pairs of episodes: `measure`, `threshold`, `gap`, `unrated` and
          `pairs_per_task`.
    """

    pairs: Count
    micro_rows: Annotated[int, Range(2)]
    loss: Annotated[str, OneOf(LOSSES)]
    beta: Annotated[float, Range(above=0)]
    length_normalised: bool
    preferences: tuple[str, ...]
    pairing: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not (self.preferences or self.files or self.demonstrations):
            raise ValueError("give preferences, files or demonstrations: there is nothing to pair")


DPOParts: TypeAlias = SupervisedParts[DpoSettings, tuple[Preference, ...]]
EncodedPair = tuple[EncodedConversation, EncodedConversation]


def parse(config: Mapping[str, Any]) -> SupervisedSettings[DpoSettings]:
    """Parses a plain config and checks all its sections."""
    settings = supervised_loop.parse(config, "dpo", DpoSettings)
    call(pair_up, "dpo.pairing", settings.learning.pairing, conversations=(), seed=0)
    return settings


@contextlib.contextmanager
def open_dpo(
    config: Mapping[str, Any], workdir: str, stop: StopFlag
) -> Iterator[tuple[Run, DPOParts]]:
    """Builds the job from a plain config; leaving the context closes its servers, threads and
    files.
    """
    settings = parse(config)

    def load(run: Run, environments: Environments | None) -> Loaded[tuple[Preference, ...]]:
        episodes = load_conversations(
            settings.learning, run.folder, task_lists(environments), "dpo"
        )
        preferences = load_preferences(settings.learning, episodes, seed=run.seed)
        run.console.note(f"{len(preferences)} preference pairs")
        members = [side for pair in preferences for side in (pair.chosen, pair.rejected)]
        return Loaded(tuple(preferences), members)

    with supervised_loop.open_job(config, workdir, stop, settings, load) as opened:
        yield opened


def load_preferences(
    settings: DpoSettings, episodes: Sequence[Conversation], *, seed: int
) -> list[Preference]:
    """Returns the pairs of the files, followed by pairs made from the episodes.

    Raises:
      ConfigError: A file cannot be read, or there are no pairs.
    """
    preferences: list[Preference] = []
    for path in settings.preferences:
        try:
            preferences += read_preferences(path, bad=settings.bad)
        except (ValueError, OSError) as error:
            raise ConfigError(f"config.dpo.preferences: {error}") from error
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


def train(run: Run, parts: DPOParts) -> None:
    """Runs the job `dpo` until `run.total_steps`; a resumed run starts at its newest checkpoint.

    Raises:
      StopRequested: The user requested a stop. ServerUnavailable, GuardStop: See
      `supervised_loop.fit`.
    """
    settings, model = parts.settings.learning, parts.model
    optimizer = make_optimizer(**settings.optimizer, total_steps=settings.steps)
    encoded = encode_pairs(parts.data, model.renderer, settings)
    pairs = _attach_reference(encoded, _reference_logprobs(run, parts, encoded))
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
        return _take_step(parts, update, state, pairs, step, run.seed, grad_limit)

    supervised_loop.fit(run, parts, optimizer, take_step)


def encode_pairs(
    preferences: Sequence[Preference], renderer: ChatRenderer, settings: DpoSettings
) -> list[EncodedPair]:
    """Encodes the pairs whose two conversations fit a row; logs the number of pairs left out.

    Raises:
      ConfigError: A conversation is too long and `too_long` is `error`, or no pair is left.
    """
    encoded: list[EncodedPair] = []
    too_long = equal = 0
    for preference in preferences:
        sides = (preference.chosen, preference.rejected)
        chosen, rejected = encode(sides, renderer, {}, train_on="actions")
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
    """Returns the indices of the pairs of a step; each epoch is a permutation of all pairs."""
    chosen = []
    for position in range(step * per_step, (step + 1) * per_step):
        epoch, place = divmod(position, count)
        chosen.append(int(np.random.default_rng([seed, epoch]).permutation(count)[place]))
    return chosen


def _reference_logprobs(
    run: Run, parts: DPOParts, encoded: Sequence[EncodedPair]
) -> list[np.ndarray]:
    """Returns the initial policy's log-probability of every token, in the order chosen, rejected,
    chosen, ...

    The log-probabilities are computed once; the run folder keeps them for a resumed run.
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
    for start in range(0, len(members), _SCORE_CHUNK):
        run.console.phase("reference log-probabilities", start, len(members))
        some = members[start : start + _SCORE_CHUNK]
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
    """Writes the array to the file atomically."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.save(file, values)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def _digest(members: Sequence[EncodedConversation]) -> str:
    """Returns a hash of tokens and masks, so that different data never share a reference file."""
    digest = hashlib.sha256()
    for member in members:
        digest.update(len(member.tokens).to_bytes(8, "little"))
        digest.update(member.tokens.tobytes())
        digest.update(member.action_mask.tobytes())
    return digest.hexdigest()[:32]


def _attach_reference(
    encoded: Sequence[EncodedPair], reference: Sequence[np.ndarray]
) -> list[Pair]:
    members = [
        Member(side.tokens, side.action_mask, values)
        for side, values in zip((s for pair in encoded for s in pair), reference, strict=True)
    ]
    return list(zip(members[::2], members[1::2], strict=True))


def _take_step(
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
    rate = get_learning_rate(settings.optimizer, step, total_steps=settings.steps)
    layout = parts.model.layout
    limit, position = put_limit(grad_limit, layout), put_position(step, layout)
    state, device_metrics = update(state, put_pairs(batch, layout), limit, position)
    metrics = jax.device_get(device_metrics)
    times = (started, packed, time.perf_counter())
    shared = supervised_loop.step_metrics(times, metrics, batch.tokens, rate)
    epoch = (step + 1) * settings.pairs / len(pairs)
    return state, shared | _preference_metrics(metrics, batch) | {"dpo/epoch": epoch}


def _preference_metrics(metrics: dict[str, np.ndarray], batch: PreferenceBatch) -> dict[str, float]:
    used = int((batch.pair_weights != 0).any(axis=1).sum())
    rows = jax.tree.map(lambda x: x[:used], batch.tokens)
    policy = ("grad_norm", "skipped", "nonfinite")
    return {
        **{f"dpo/{k}": float(v) for k, v in metrics.items() if k not in policy},
        "dpo/pairs": float((batch.pair_weights != 0).sum()),
        "batch/padding_share": batching.padding_share(rows),
        "batch/action_tokens": float(batch.tokens.action_mask.sum()),
    }
