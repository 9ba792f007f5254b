"""AgentEvol: fit, explore, keep what was rewarded, fit again from the base model (arXiv:2406.04151).

The run is a sequence of fits of `sft.steps` optimiser steps. Fit 0 imitates the demonstrations; fit
n imitates them and the kept episodes of exploration n, which the policy of fit n - 1 played. Every
fit starts from the weights before fit 0.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from agentgym_jax.data.pipeline import Batches
from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.errors import ServerUnavailable
from agentgym_jax.learner import train_state
from agentgym_jax.learner.rewarded import rewarded
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.metrics import of_environment
from agentgym_jax.rollout.collect import EpisodeRequest
from agentgym_jax.rollout.episode import EpisodeLimits
from agentgym_jax.run import conversations as supervised
from agentgym_jax.run import playing
from agentgym_jax.run.agentevol import AgentEvolParts
from agentgym_jax.run.run import Run, StopRequested
from agentgym_jax.run_folder import RunFolderError
from agentgym_jax.text.chat import EncodedConversation
from agentgym_jax.training import fitting, guards, held_out, sft
from agentgym_jax.training.guards import GuardStop, History
from agentgym_jax.trajectory import Trajectory, from_record, to_record

Metrics = dict[str, float]


def train(run: Run, parts: AgentEvolParts) -> None:
    """Trains until `run.total_steps`, from wherever the run folder stands.

    Raises:
      StopRequested: the run was asked to stop.
      ServerUnavailable: an environment failed all calls for long.
      GuardStop: a guard ends the run. In all cases the newest complete step is saved, and the
        episodes that were explored are on disk.
    """
    model, steps = parts.model, parts.settings.sft.steps
    optimizer = sft.optimizer_of(parts.settings.sft)
    update = sft.supervised_update(model, optimizer, parts.settings.logprob_chunk)
    restored = run.restore(train_state.abstract_state(model.policy, optimizer, model.layout))
    state, step, unlogged = (None, 0, None) if restored is None else restored
    data = None
    guarding, history = parts.settings.guards, History.from_json(run.restored_guards)
    try:
        if unlogged is not None and run.writer.last_step != step:
            run.log_step(step, unlogged | _evaluate(run, parts, state, step))
        unlogged = None
        while step < run.total_steps:
            if run.should_stop():
                raise StopRequested(f"stopped after step {step}")
            fit, done = divmod(step, steps)
            if data is None or done == 0:
                data, about = _data(run, parts, state if done == 0 else None, fit)
            if done == 0:
                state = None  # frees the policy that explored before the next one exists
                state = fitting.first_state(model, optimizer, run.seed)
                history = History()  # gradients of another fit say nothing about these
            limit = guards.withheld_above(guarding, history)
            run.begin("update")
            state, metrics = sft.supervised_step(
                model, update, state, data, done, parts.settings.sft, limit
            )
            step += 1
            metrics, history, stop = fitting.judged(run, step, guarding, history, metrics | about)
            is_fitted = step % steps == 0
            if is_fitted:
                unlogged = metrics
                metrics = metrics | _evaluate(run, parts, state, step)
                unlogged = None
            run.log_step(step, metrics)
            if run.is_save_due(step) or is_fitted or stop is not None:
                run.save(step, state, guards=history.to_json())
            if stop is not None:
                raise GuardStop(f"stopped after step {step}, which is saved: {stop}")
    except (StopRequested, ServerUnavailable):
        if state is not None:
            run.save(step, state, unlogged, guards=history.to_json())
        raise


def _data(
    run: Run, parts: AgentEvolParts, explorer: TrainState | None, fit: int
) -> tuple[Batches, Metrics]:
    """Batches of a fit, and what the log says about their source.

    `explorer` is the policy that explores for this fit; None if it has begun, and its episodes
    are therefore on disk.
    """
    settings = parts.settings
    before = playing.preambles(parts.players.environments, settings.playing)
    encoded = supervised.encode(
        parts.demonstrations, parts.model.renderer, before, train_on=settings.sft.train_on
    )
    importance = [1.0] * len(encoded)
    metrics = {"agentevol/round": float(fit), "agentevol/demonstrations": float(len(encoded))}
    if fit:
        explored = _explored(run, parts, explorer, fit)
        kept = rewarded(
            explored,
            settings.agentevol.rules,
            keep_per_task=settings.agentevol.keep_per_task,
            weighting=settings.agentevol.weighting,
        )
        metrics |= _of_exploration(explored, [explored[i] for i, _ in kept])
        encoded += [_as_conversation(explored[i], settings.sft.train_on) for i, _ in kept]
        importance += [weight for _, weight in kept]
    seed = int(np.random.SeedSequence([run.seed, fit]).generate_state(1)[0])
    data = sft.batches_of(encoded, settings.sft, seed, importance)
    return data, metrics


def _as_conversation(trajectory: Trajectory, train_on: str) -> EncodedConversation:
    """An episode to imitate, token by token as it was sampled."""
    sequence = EncodedConversation(trajectory.tokens, trajectory.action_mask, trajectory.sources)
    return supervised.on_text(sequence) if train_on == "text" else sequence


def _explored(
    run: Run, parts: AgentEvolParts, explorer: TrainState | None, number: int
) -> list[Trajectory]:
    """All episodes of an exploration; those that are not in the run folder yet are played.

    Files are named by the optimiser steps before the exploration, so that a run that resumes
    before it plays it again, and one that resumes in it or after it reads them.
    """
    settings = parts.settings.agentevol
    step = number * parts.settings.sft.steps
    tasks = parts.tasks_of_round(number)
    is_ready = False
    explored: list[Trajectory] = []
    for part, start in enumerate(range(0, len(tasks), settings.tasks_per_file)):
        kind = f"explore{part:05d}"
        if not run.folder.trajectories_path(step, kind).exists():
            if explorer is None:
                raise RunFolderError(
                    f"{run.folder.trajectories_path(step, kind)} is missing: its policy is gone. "
                    "Restore the file or start anew with another --workdir."
                )
            if not is_ready:
                held_out.give_weights(parts.players, explorer.params, step)
                is_ready = True
            some = tasks[start : start + settings.tasks_per_file]
            episodes = _play(run, parts, some, step, f"exploring, round {number}")
            run.folder.write_trajectories(step, [to_record(t) for t in episodes], kind)
        explored += map(from_record, run.folder.read_trajectories(step, kind))
    return explored


def _play(
    run: Run, parts: AgentEvolParts, tasks: Sequence[Task], step: int, name: str
) -> list[Trajectory]:
    settings = parts.settings.agentevol
    sampling = parts.settings.playing.sampling
    limits = {
        environment: EpisodeLimits(
            max_turns=turns,
            max_tokens=sampling.max_tokens,
            max_invalid_actions=parts.settings.playing.rollout.max_invalid_actions,
        )
        for environment, turns in settings.max_turns.items()
    }
    requests = [
        EpisodeRequest(
            task=task,
            sample=sample,
            seed=run.seed,
            step=step,
            limits=limits[task.environment],
            sampling=sampling,
        )
        for task in tasks
        for sample in range(settings.samples)
    ]
    episodes, _ = parts.players.collector.collect(
        requests,
        replacement_stride=settings.samples,
        on_progress=run.progress(name),
        should_stop=run.should_stop,
    )
    if run.should_stop():
        raise StopRequested(f"stopped while exploring after step {step}")
    return episodes


def _evaluate(run: Run, parts: AgentEvolParts, state: TrainState, step: int) -> Metrics:
    """Held-out success at the end of a fit; nothing without held-out tasks."""
    # The policy itself is scored, at temperature 1 and of the whole distribution, however wide it
    # explores.
    sampling = dataclasses.replace(
        parts.settings.playing.sampling, temperature=1.0, top_k=0, top_p=1.0
    )
    return held_out.evaluate_offline(run, parts.players, state.params, step, sampling=sampling)


def _of_exploration(explored: Sequence[Trajectory], kept: Sequence[Trajectory]) -> Metrics:
    """What an exploration brought; it stands in the log at every step of the fit that uses it."""
    valid = [t for t in explored if t.outcome.is_valid]
    metrics = {
        "agentevol/explored": float(len(explored)),
        "agentevol/kept": float(len(kept)),
        "agentevol/kept_fraction": len(kept) / max(1, len(valid)),
        "agentevol/kept_tasks": len({t.item_id for t in kept})
        / max(1, len({t.item_id for t in explored})),
        "rollout/episodes": float(len(explored)),
        "rollout/invalid_fraction": 1.0 - len(valid) / max(1, len(explored)),
    }
    environments = sorted({t.item_id.rpartition("_")[0] for t in valid})
    if valid:
        metrics["rollout/success"] = float(np.mean([t.success for t in valid]))
        metrics["rollout/turns_mean"] = float(np.mean([len(t.turns) for t in valid]))
    if len(environments) > 1:
        for name in environments:
            own = [t.success for t in valid if t.item_id.rpartition("_")[0] == name]
            metrics[of_environment("rollout/success", name)] = float(np.mean(own))
    return metrics
