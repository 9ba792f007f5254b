"""Supervised fine-tuning on conversations, for the job `sft` and for the warm start of RL."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import optax

from agentgym_jax import batch as batching
from agentgym_jax.algorithms import losses
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.encoding import encode
from agentgym_jax.data.pipeline import Batches, batches
from agentgym_jax.jobs import supervised_loop
from agentgym_jax.jobs.config.model import Model, abstract_params
from agentgym_jax.jobs.config.sections import ConfigError
from agentgym_jax.jobs.config.settings import SftSettings
from agentgym_jax.jobs.conversations import load_conversations
from agentgym_jax.jobs.environments import Environments, task_lists
from agentgym_jax.jobs.job import Loaded
from agentgym_jax.jobs.run import Run, StopFlag, StopRequested
from agentgym_jax.jobs.supervised_loop import SupervisedParts, SupervisedSettings
from agentgym_jax.learner import train_state
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.learner.optimizer import get_learning_rate, make_optimizer
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import Update, make_update, put_batch, put_limit, put_position
from agentgym_jax.telemetry.metrics_file import MetricWriter
from agentgym_jax.text.chat import EncodedConversation

SFTParts: TypeAlias = SupervisedParts[SftSettings, tuple[Conversation, ...]]


def parse(config: Mapping[str, Any]) -> SupervisedSettings[SftSettings]:
    """Parses a plain config and checks all its sections."""
    return supervised_loop.parse(config, "sft", SftSettings)


@contextlib.contextmanager
def open_sft(
    config: Mapping[str, Any], workdir: str, stop: StopFlag
) -> Iterator[tuple[Run, SFTParts]]:
    """Builds the job from a plain config; leaving the context closes servers, threads and files."""
    settings = parse(config)

    def load(run: Run, environments: Environments | None) -> Loaded[tuple[Conversation, ...]]:
        found = tuple(load_conversations(settings.learning, run.folder, task_lists(environments)))
        return Loaded(found, found)

    with supervised_loop.open_job(config, workdir, stop, settings, load) as opened:
        yield opened


def train(run: Run, parts: SFTParts) -> None:
    """Runs the job `sft` until `run.total_steps`; a resumed run starts at its newest checkpoint.

    Raises:
      StopRequested: The user requested a stop. ServerUnavailable, GuardStop: See
      `supervised_loop.fit`.
    """
    settings, model = parts.settings.learning, parts.model
    optimizer = build_optimizer(settings)
    data = _encode_batches(model, parts.data, settings, run.seed, {})
    update = make_supervised_update(model, optimizer, parts.settings.logprob_chunk)

    def take_step(
        state: TrainState, step: int, grad_limit: float
    ) -> tuple[TrainState, dict[str, float]]:
        return supervised_step(model, update, state, data, step, settings, grad_limit)

    supervised_loop.fit(run, parts, optimizer, take_step)


def warm_start(
    run: Run,
    model: Model,
    settings: SftSettings,
    conversations: Sequence[Conversation],
    preambles: Mapping[str, Any],
    params: Any,
    logprob_chunk: int,
) -> Any:
    """Returns the weights after the warm start of an RL run; trains once and later reads
    `warm_start/`.

    Args:
      run: Run whose folder keeps the weights.
      model: Policy and renderer.
      settings: Checked section `sft`.
      conversations: Conversations to imitate.
      preambles: Messages to prepend to conversations, by environment.
      params: Weights before the warm start.
      logprob_chunk: Number of tokens whose logits exist at the same time.
    """
    folder = run.folder.path / "warm_start"
    folder.mkdir(exist_ok=True)
    with Checkpoints(folder / "checkpoints", max_to_keep=1) as checkpoints:
        if checkpoints.latest_step() == settings.steps:
            return checkpoints.restore_params(
                settings.steps, abstract_params(model.policy, model.layout)
            )
        optimizer = build_optimizer(settings)
        data = _encode_batches(model, conversations, settings, run.seed, preambles)
        state = train_state.create(model.policy, optimizer, params, model.layout)
        update = make_supervised_update(model, optimizer, logprob_chunk)
        # An interrupted warm start is repeated from its beginning, so its old metrics are removed.
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


def build_optimizer(settings: SftSettings) -> optax.GradientTransformation:
    """Builds the optimiser of a section `sft`."""
    return make_optimizer(**settings.optimizer, total_steps=settings.steps)


def _encode_batches(
    model: Model,
    conversations: Sequence[Conversation],
    settings: SftSettings,
    seed: int,
    preambles: Mapping[str, Any],
) -> Batches:
    encoded = encode(conversations, model.renderer, preambles, train_on=settings.train_on)
    return make_batches(encoded, settings, seed)


def make_batches(
    encoded: Sequence[EncodedConversation],
    settings: SftSettings,
    seed: int,
    importance: Sequence[float] | None = None,
) -> Batches:
    """Packs encoded conversations into batches.

    Args:
      encoded: Encoded conversations.
      settings: Checked section `sft`.
      seed: Random seed of the order of conversations.
      importance: Weight of each conversation; None gives all conversations equal weight.

    Raises:
      ConfigError: A conversation is too long and `too_long` is `error`, or no training data is
          left.
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


def make_supervised_update(
    model: Model, optimizer: optax.GradientTransformation, logprob_chunk: int
) -> Update:
    """Returns a compiled optimiser step that minimises the negative log-likelihood."""
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
    """Takes one optimiser step; the update is not applied if the gradient norm exceeds
    `grad_limit`.

    Returns:
      The next state and the metrics of the step.
    """
    started = time.perf_counter()
    packed = data.batch_at(step)
    batch = batching.micro_batches(packed, settings.micro_rows)
    ready = time.perf_counter()
    rate = get_learning_rate(settings.optimizer, step, total_steps=settings.steps)
    limit = put_limit(grad_limit, model.layout)
    position = put_position(step, model.layout)
    state, device_metrics = update(state, put_batch(batch, model.layout), limit, position)
    metrics = jax.device_get(device_metrics)
    times = (started, ready, time.perf_counter())
    return state, supervised_loop.step_metrics(times, metrics, packed, rate) | {
        "sft/loss": float(metrics["loss"]),
        "sft/tokens": float(packed.action_mask.sum()),
        "sft/epoch": data.epochs_until(step),
        "policy/entropy": float(metrics["entropy"]),
        "batch/padding_share": batching.padding_share(packed),
    }
