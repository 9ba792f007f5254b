"""Supervised fine-tuning on conversations, for the job `sft` and for the warm start of RL."""

import functools
import math
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np
import optax

from agentgym_jax.algorithms import losses
from agentgym_jax.config.model import Model
from agentgym_jax.config.sections import config_errors
from agentgym_jax.config.settings import SftSettings
from agentgym_jax.data.conversations import Conversation
from agentgym_jax.data.encoding import encode
from agentgym_jax.data.pipeline import Batches, batches
from agentgym_jax.episodes import batch as batching
from agentgym_jax.jobs.environments import Environments
from agentgym_jax.jobs.job import JobSettings, Parts, open_job
from agentgym_jax.jobs.run import Run, StopRequested
from agentgym_jax.jobs.sampled_agents import check_held_out
from agentgym_jax.learner import train_state
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.learner.update import make_update, put_batch, put_scalar
from agentgym_jax.mesh import processes
from agentgym_jax.models.policy import Params
from agentgym_jax.supervised import supervised_loop
from agentgym_jax.supervised.imitation_data import load_conversations
from agentgym_jax.supervised.supervised_loop import Metrics, SupervisedSettings, step_metrics
from agentgym_jax.telemetry.metrics_file import MetricWriter
from agentgym_jax.text.chat import EncodedConversation

Settings = SupervisedSettings[SftSettings]


parse = functools.partial(supervised_loop.parse, kind=SftSettings)


def _load(
    run: Run, settings: Settings, environments: Environments | None
) -> tuple[list[Conversation], list[Conversation]]:
    found = load_conversations(settings.learning, run.folder, environments, run.console.phase)
    check_held_out(environments, found)
    return found, found


open_sft = functools.partial(open_job, parse=parse, load=_load)


def train(run: Run, parts: Parts[Settings, list[Conversation]]) -> None:
    """Trains until `run.total_steps`; `supervised_loop.fit` lists the errors."""
    settings, model = parts.settings.learning, parts.model
    optimizer, sft_step = make_sft_step(model, settings, parts.settings.logprob_chunk)
    with config_errors("config.sft: "):
        encoded = encode(parts.data, model.renderer, {}, train_on=settings.train_on)
    data = make_batches(encoded, settings, run.seed)
    take_step = lambda state, step, limit: sft_step(state, data, step, limit)
    supervised_loop.fit(run, parts, optimizer, take_step)


def warm_start(
    run: Run,
    parts: Parts[JobSettings, Sequence[Conversation]],
    settings: SftSettings,
    params: Params,
) -> Params:
    """Returns the weights after the warm start of RL from `params`.

    It trains once on the conversations in `parts.data`, and later reads `run.folder.warm_start`.
    An interrupted warm start is saved there, too, and continues after its last step.

    Raises:
      StopRequested: The user requested a stop. The steps that are done are saved.
    """
    model, agent = parts.model, parts.agent
    assert agent is not None, "a job with rollouts has an agent"
    permanent, phase = run.folder.warm_start, "warm start (SFT)"
    folder = run.folder.path / permanent.name
    folder.mkdir(exist_ok=True)
    directory = permanent / "checkpoints"
    permanent.mkdir(exist_ok=True)
    with Checkpoints(directory, max_to_keep=1) as checkpoints:
        if checkpoints.newest == settings.steps:
            return checkpoints.restore_params(settings.steps, model.abstract_params())
        optimizer, sft_step = make_sft_step(model, settings, parts.settings.logprob_chunk)
        # With the messages of the run's episodes, a conversation starts like an episode.
        preambles = {name: text.preamble for name, text in agent.environments.texts.items()}
        with config_errors("config.sft: "):
            encoded = encode(parts.data, model.renderer, preambles, train_on=settings.train_on)
        data = make_batches(encoded, settings, run.seed)
        first, is_writer = checkpoints.newest or 0, processes.is_writer()
        if first:
            abstract = train_state.abstract_state(model.trained, optimizer, model.layout)
            state, _ = checkpoints.restore(first, abstract)
        else:
            state = train_state.create(model.trained, optimizer, params, model.layout)

        def save(step: int) -> None:
            checkpoints.save(step, state, {"step": step, "seed": run.seed})
            checkpoints.wait()

        run.begin(phase, settings.steps)
        with MetricWriter(folder / "metrics.jsonl", is_enabled=is_writer) as writer:
            writer.truncate_after(first)
            for step in range(first, settings.steps):
                if run.should_stop.agreed():
                    if step > first:
                        writer.sync()
                        run.folder.push()
                        save(step)
                    raise StopRequested(f"stopped after step {step} of the warm start")
                state, metrics = sft_step(state, data, step)
                writer.write(step + 1, metrics)
                loss = f"loss {metrics['sft/loss']:.3f}"
                run.console.phase(phase, step + 1, settings.steps, loss)
        run.folder.push()
        save(settings.steps)
        return state.params


def make_batches(
    encoded: Sequence[EncodedConversation],
    settings: SftSettings,
    seed: int,
    importance: Sequence[float] | None = None,
) -> Batches:
    """Packs encoded conversations into batches; without `importance` all have equal weight."""
    with config_errors("config.sft: "):
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


def make_sft_step(
    model: Model, settings: SftSettings, logprob_chunk: int
) -> tuple[optax.GradientTransformation, Callable[..., tuple[TrainState, Metrics]]]:
    """Returns the optimiser, and a function that takes one step on the negative log-likelihood.

    The function maps (state, batches, step, grad_limit) to the next state and the metrics. An
    update is not applied if its gradient norm exceeds `grad_limit`.
    """
    optimizer = make_optimizer(**settings.optimizer, total_steps=settings.steps)
    update = make_update(
        model.policy,
        optimizer,
        losses.negative_log_likelihood,
        entropy_coef=0.0,
        kl_coef=0.0,
        kl_kind="k3",
        temperature=1.0,
        logprob_chunk=logprob_chunk,
        layout=model.layout,
        adapters=model.adapters,
    )

    def sft_step(
        state: TrainState, data: Batches, step: int, grad_limit: float = math.inf
    ) -> tuple[TrainState, Metrics]:
        started = time.perf_counter()
        tokens = data.batch_at(step)
        batch = batching.micro_batches(tokens, settings.micro_rows)
        packed = time.perf_counter()
        limit = put_scalar(np.float32(grad_limit), model.layout)
        position = put_scalar(np.int32(step), model.layout)
        state, computed = update(state, put_batch(batch, model.layout), limit, position, model.base)
        computed = jax.device_get(computed)
        metrics = step_metrics(computed, tokens, settings, step, started=started, packed=packed)
        return state, metrics | {
            "sft/loss": float(computed["loss"]),
            "sft/tokens": float(tokens.action_mask.sum()),
            "sft/epoch": data.epochs_until(step),
            "policy/entropy": float(computed["entropy"]),
            "batch/padding_share": batching.padding_share(tokens),
        }

    return optimizer, sft_step
