"""Supervised training on conversations: as a job of its own, and as the warm start of RL."""

import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import optax

from agentgym_jax import batch as batching
from agentgym_jax.algorithms import losses
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.pipeline import Batches, batches
from agentgym_jax.learner import train_state
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.learner.optimizer import make_optimizer, rate_of
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import Update, make_update, put_batch, put_limit, put_position
from agentgym_jax.metrics_file import MetricWriter
from agentgym_jax.run import conversations as supervised
from agentgym_jax.run.model import Model, abstract_params
from agentgym_jax.run.rl import RLParts
from agentgym_jax.run.run import Run, StopRequested
from agentgym_jax.run.sections import ConfigError
from agentgym_jax.run.settings import SftSettings
from agentgym_jax.run.sft import SFTParts
from agentgym_jax.text.chat import EncodedConversation
from agentgym_jax.training import fitting


def train(run: Run, parts: SFTParts) -> None:
    """The job `sft`: trains until `run.total_steps`, resumes from the run folder.

    Raises:
      StopRequested: the run was asked to stop.
      ServerUnavailable, GuardStop: see `fitting.fit`.
    """
    settings, model = parts.settings.learning, parts.model
    optimizer = optimizer_of(settings)
    data = _batches(model, parts.data, settings, run.seed, {})
    update = supervised_update(model, optimizer, parts.settings.logprob_chunk)

    def take_step(
        state: TrainState, step: int, grad_limit: float
    ) -> tuple[TrainState, dict[str, float]]:
        return supervised_step(model, update, state, data, step, settings, grad_limit)

    fitting.fit(run, model, optimizer, take_step, parts.players, parts.settings.guards)


def warm_start(run: Run, parts: RLParts, params: Any) -> Any:
    """Weights after the warm start of an RL run; done once and kept in `warm_start/`.

    Args:
      run: whose folder keeps it.
      parts: of the RL job, with its conversations.
      params: before the warm start.
    """
    settings, model = parts.settings.sft, parts.model
    folder = run.folder.path / "warm_start"
    folder.mkdir(exist_ok=True)
    with Checkpoints(folder / "checkpoints", max_to_keep=1) as checkpoints:
        if checkpoints.latest_step() == settings.steps:
            return checkpoints.restore_params(
                settings.steps, abstract_params(model.policy, model.layout)
            )
        optimizer = optimizer_of(settings)
        preambles = {name: text.preamble for name, text in parts.environments.texts.items()}
        data = _batches(model, parts.conversations, settings, run.seed, preambles)
        state = train_state.create(model.policy, optimizer, params, model.layout)
        update = supervised_update(model, optimizer, parts.settings.logprob_chunk)
        # A second step line of the same number would be an error: a stopped start begins anew.
        (folder / "metrics.jsonl").unlink(missing_ok=True)
        run.begin("warm start (SFT)", settings.steps)
        with MetricWriter(folder / "metrics.jsonl") as writer:
            for step in range(settings.steps):
                if run.should_stop():
                    raise StopRequested("stopped during the warm start; it will be done again")
                state, metrics = supervised_step(model, update, state, data, step, settings)
                values = writer.write(step + 1, metrics)
                run.console.phase(
                    "warm start (SFT)", step + 1, settings.steps, f"loss {values['sft/loss']:.3f}"
                )
        checkpoints.save(settings.steps, state, {"step": settings.steps, "seed": run.seed})
        checkpoints.wait()
        return state.params


def optimizer_of(settings: SftSettings) -> optax.GradientTransformation:
    """The optimiser of a supervised section."""
    return make_optimizer(**settings.optimizer, total_steps=settings.steps)


def _batches(
    model: Model,
    conversations: Sequence[Conversation],
    settings: SftSettings,
    seed: int,
    preambles: dict[str, Any],
) -> Batches:
    encoded = supervised.encode(
        conversations, model.renderer, preambles, train_on=settings.train_on
    )
    return batches_of(encoded, settings, seed)


def batches_of(
    encoded: Sequence[EncodedConversation],
    settings: SftSettings,
    seed: int,
    importance: Sequence[float] | None = None,
) -> Batches:
    """Batches of a supervised section.

    Args:
      encoded: the conversations.
      settings: the section.
      seed: of their order.
      importance: of each; None is 1 each.

    Raises:
      ConfigError: a conversation is too long under `error`, or nothing can be trained on.
    """
    try:
        return batches(
            encoded,
            row_length=settings.row_length,
            rows=settings.rows,
            seed=seed,
            steps=settings.steps,
            weighting=settings.weighting,
            too_long=settings.too_long,
            importance=importance,
        )
    except ValueError as error:
        raise ConfigError(f"config.sft: {error}") from error


def supervised_update(
    model: Model, optimizer: optax.GradientTransformation, logprob_chunk: int
) -> Update:
    """Compiles the optimiser step that minimises the negative log-likelihood."""
    return make_update(
        model.policy,
        optimizer,
        losses.negative_log_likelihood,
        entropy_coef=0.0,
        kl_coef=0.0,
        kl_kind="k3",
        temperature=1.0,
        logprob_chunk=logprob_chunk,
        layout=model.layout,
    )


def supervised_step(
    model: Model,
    update: Update,
    state: TrainState,
    data: Batches,
    step: int,
    settings: SftSettings,
    grad_limit: float = math.inf,
) -> tuple[TrainState, dict[str, float]]:
    """One optimiser step on the batch of a step, if its gradient is within the limit; its metrics."""
    started = time.perf_counter()
    packed = data.batch_at(step)
    batch = batching.micro_batches(packed, settings.micro_rows)
    ready = time.perf_counter()
    rate = rate_of(settings.optimizer, step, total_steps=settings.steps)
    limit = put_limit(grad_limit, model.layout)
    position = put_position(step, model.layout)
    state, device_metrics = update(state, put_batch(batch, model.layout), limit, position)
    metrics = jax.device_get(device_metrics)
    ended = time.perf_counter()
    tokens = float((packed.segment_ids > 0).sum())
    return state, {
        "sft/loss": float(metrics["loss"]),
        "sft/tokens": float(packed.action_mask.sum()),
        "sft/epoch": data.epochs_until(step),
        "policy/grad_norm": float(metrics["grad_norm"]),
        "policy/entropy": float(metrics["entropy"]),
        "policy/grad_norm_max": float(metrics["grad_norm"]),
        "policy/skipped": float(metrics["skipped"]),
        "policy/nonfinite": float(metrics["nonfinite"]),
        "policy/learning_rate": rate,
        "batch/padding_share": batching.padding_share(packed),
        "batch/tokens": tokens,
        "rate/train_tokens_per_s": tokens / (ended - ready),
        "time/data_s": ready - started,
        "time/update_s": ended - ready,
        "time/iteration_s": ended - started,
    }
