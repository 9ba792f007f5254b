"""AgentEvol (arXiv:2406.04151): fit, explore, keep rewarded episodes, fit the base model again.

The run is a sequence of fits of `sft.steps` optimiser steps. Fit 0 imitates the demonstrations. Fit
n imitates them and the episodes kept from exploration n, sampled by the policy of fit n - 1. Every
fit starts from the same initial weights.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import jax
import numpy as np

from agentgym_jax.checks.limits import OneOf
from agentgym_jax.config.agent import AgentSettings, check_training_samples, parse_agent
from agentgym_jax.config.environment_sections import check_trained
from agentgym_jax.config.sections import ConfigError, check, config_errors, parse_section
from agentgym_jax.config.settings import Count, CountOrNone, SftSettings, Turns
from agentgym_jax.data.conversations import Conversation, sampled_sequences
from agentgym_jax.data.encoding import encode, train_on_text
from agentgym_jax.data.pipeline import Batches
from agentgym_jax.data.tasks import MixtureSchedule, Task, count_earlier
from agentgym_jax.episodes.trajectory import Trajectory, to_record
from agentgym_jax.jobs.environments import Environments, make_schedule
from agentgym_jax.jobs.job import Parts, open_job
from agentgym_jax.jobs.run import LoopState, Run, StopRequested
from agentgym_jax.jobs.sampled_agents import SampledAgent, check_held_out, training_preambles
from agentgym_jax.learner.episode_selection import MEASURES, WEIGHTINGS, Rule, select_episodes
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.mesh import processes
from agentgym_jax.rollout.episode import EpisodeLimits, EpisodeRequest
from agentgym_jax.rollout.shared import collect_shared, is_stopped
from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.supervised import sft, supervised_loop
from agentgym_jax.supervised.imitation_data import load_conversations
from agentgym_jax.supervised.supervised_loop import Metrics, SupervisedSettings
from agentgym_jax.telemetry.metrics import add_environment


def _check_explore(
    max_turns: Turns, measure: Annotated[str, OneOf(MEASURES)], threshold: float
) -> None:
    """Declares the valid keys of one entry of `agentevol.explore`; `check` reads this signature."""


@dataclasses.dataclass(frozen=True)
class AgentEvolSettings:
    """Section `agentevol`: rounds that explore tasks, select episodes and fit the policy.

    Attributes:
      rounds: Number of explorations; the policy is fitted before the first and after each.
      tasks_per_round: Training tasks of an exploration; 0 selects all training tasks.
      samples: Episodes per task.
      tasks_per_file: Tasks per file of episodes; a killed run samples at most one file again.
      explore: Turn limit `max_turns` and the rule (`measure`, `threshold`) that selects episodes to
        keep, by environment.
      keep_per_task: Maximum number of selected episodes kept per task, the best first; 0 for all.
      weighting: Weights of the kept episodes: `equal`, `reward` or `importance`
        (learner/episode_selection.py).
    """

    rounds: Count
    tasks_per_round: CountOrNone
    samples: Count
    tasks_per_file: Count
    explore: Mapping[str, Mapping[str, Any]]
    keep_per_task: CountOrNone
    weighting: Annotated[str, OneOf(WEIGHTINGS)]

    def __post_init__(self) -> None:
        for name, entry in self.explore.items():
            check(_check_explore, f"agentevol.explore.{name}", entry)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSettings(SupervisedSettings[SftSettings]):
    """Checked config of job `agentevol`.

    `agent` has the sampling options of evaluations, `sampling` those of the explorations.
    """

    agent: AgentSettings
    sampling: SamplingOptions
    agentevol: AgentEvolSettings


@dataclasses.dataclass(frozen=True)
class AgentEvolParts(Parts[JobSettings, tuple[list[Conversation], MixtureSchedule]]):
    """Components of job `agentevol`: the data are demonstrations and the order of the tasks."""

    agent: SampledAgent


def parse(config: Mapping[str, Any]) -> JobSettings:
    """Parses a plain config and checks all its sections."""
    recorded = supervised_loop.parse_without_agent(config, SftSettings, "agentevol")
    # Every fit ends with an evaluation.
    agent = parse_agent(config, every=recorded.learning.steps, at_start=False)
    check_trained(agent.environments)
    # Evaluations sample with temperature 1 from the whole distribution, so that scores do not
    # depend on the temperature of the exploration.
    neutral = dataclasses.replace(agent.sampling, temperature=1.0, top_k=0, top_p=1.0)
    exploration = parse_section(config, "agentevol", AgentEvolSettings)
    changes = {
        "agent": dataclasses.replace(agent, sampling=neutral),
        "sampling": agent.sampling,
        "agentevol": exploration,
        "max_episodes": exploration.tasks_per_file * exploration.samples,
    }
    settings = JobSettings(**vars(recorded) | changes)
    _check_consistency(settings, config["total_steps"])
    return settings


def _check_consistency(s: JobSettings, total_steps: int) -> None:
    """Checks conditions on several sections together."""
    steps = (s.agentevol.rounds + 1) * s.learning.steps
    if total_steps != steps:
        raise ConfigError(
            f"config.total_steps={total_steps} must be {steps}: config.sft.steps="
            f"{s.learning.steps} for the demonstrations and again after each of "
            f"{s.agentevol.rounds} rounds"
        )
    trained = {name for name, entry in s.agent.environments.items() if entry.weight}
    if trained != set(s.agentevol.explore):
        raise ConfigError(
            f"config.agentevol.explore names {sorted(s.agentevol.explore)}, but the environments "
            f"to train on are {sorted(trained)}"
        )
    check_training_samples(s.sampling, "sft", s.learning.row_length)


def _load(
    run: Run, settings: JobSettings, environments: Environments | None
) -> tuple[tuple[list[Conversation], MixtureSchedule], list[Conversation]]:
    assert environments is not None, "the job has an agent"
    found = load_conversations(settings.learning, run.folder, environments, run.console.phase)
    check_held_out(environments, found)
    entries, tasks = settings.agent.environments, environments.train_tasks
    return (found, make_schedule(entries, tasks, seed=run.seed)), found


open_agentevol = functools.partial(
    open_job, parse=parse, load=_load, build=lambda parts: AgentEvolParts(**vars(parts))
)


def train(run: Run, parts: AgentEvolParts) -> None:
    """Trains until `run.total_steps`; `supervised_loop.fit` lists the errors."""
    model, settings = parts.model, parts.settings.learning
    optimizer, sft_step = sft.make_sft_step(model, settings, parts.settings.logprob_chunk)
    model.pin(run.folder)  # every fit starts from these weights
    data: Batches | None = None
    about: Metrics = {}

    def before_step(now: LoopState) -> LoopState:
        """Loads the data of a fit; a fit after the first restarts from the initial weights."""
        nonlocal data, about
        fit, done = divmod(now.step, settings.steps)
        if data is not None and done:
            return now
        run.save(now)  # otherwise a crash while exploring would lose the policy that explores
        data, about = _load_fit_data(run, parts, None if done else now.state, fit)
        if not fit or done:
            return now
        jax.tree.map(lambda x: x.delete(), now.state)  # frees memory for the new weights
        # Gradient norms of different fits cannot be compared, so the history restarts too.
        return LoopState(now.step, supervised_loop.initial_state(model, optimizer))

    def take_step(state: TrainState, step: int, limit: float) -> tuple[TrainState, Metrics]:
        state, metrics = sft_step(state, data, step % settings.steps, limit)
        return state, metrics | about

    supervised_loop.fit(run, parts, optimizer, take_step, before_step)


def _load_fit_data(
    run: Run, parts: AgentEvolParts, explorer: TrainState | None, fit: int
) -> tuple[Batches, Metrics]:
    """Returns the batches of fit number `fit`, and metrics of the conversations in them.

    `explorer` is the state of the policy that explores for this fit. It is None after the first
    step of the fit, because the episodes are then on disk.
    """
    settings = parts.settings
    preambles = training_preambles(parts.agent.environments, settings.agent)
    (demonstrations, _), train_on = parts.data, settings.learning.train_on
    with config_errors("config.sft: "):
        encoded = encode(demonstrations, parts.model.renderer, preambles, train_on=train_on)
    importance = [1.0] * len(encoded)
    metrics = {"agentevol/round": float(fit), "agentevol/demonstrations": float(len(encoded))}
    if fit:
        explored = _explore(run, parts, explorer, fit)
        entries = settings.agentevol.explore.items()
        kept = select_episodes(
            explored,
            {name: Rule(entry["measure"], entry["threshold"]) for name, entry in entries},
            keep_per_task=settings.agentevol.keep_per_task,
            weighting=settings.agentevol.weighting,
        )
        metrics |= _exploration_metrics(explored, [explored[i] for i, _ in kept])
        for i, weight in kept:
            sequences = sampled_sequences(explored[i])
            encoded += [train_on_text(s) if train_on == "text" else s for s in sequences]
            importance += [weight] * len(sequences)
    seed = int(np.random.SeedSequence([run.seed, fit]).generate_state(1)[0])
    data = sft.make_batches(encoded, settings.learning, seed, importance)
    return data, metrics


def _explore(
    run: Run, parts: AgentEvolParts, explorer: TrainState | None, number: int
) -> list[Trajectory]:
    """Returns the episodes of exploration `number`; samples those missing in the run folder.

    File names contain the number of optimiser steps before the exploration. If a run resumes at an
    earlier step, it explores again; if it resumes at a later step, it reads the files.
    """
    size, step = parts.settings.agentevol.tasks_per_file, number * parts.settings.learning.steps
    tasks, folder = _tasks_of_round(parts, number), run.folder
    draws = list(zip(tasks, count_earlier(tasks), strict=True))
    starts = range(0, len(tasks), size)
    files = {f"explore{n:05d}": draws[start : start + size] for n, start in enumerate(starts)}
    missing = [kind for kind in files if not folder.trajectories_path(step, kind).exists()]
    if missing:
        if explorer is None:
            raise RunFolderError(
                f"{folder.trajectories_path(step, missing[0])} is missing: its policy is gone. "
                "Restore the file or start again with another --workdir."
            )
        parts.agent.set_params(explorer.params, version=step)
    for kind in missing:
        episodes = _collect(run, parts, files[kind], step, f"exploring, round {number}")
        own = processes.own_part(len(episodes))
        folder.write_trajectories(step, [to_record(episodes[i].load()) for i in own], kind)
    found = [t for kind in files for t in folder.read_episodes(step, kind)]
    if len(found) != (wanted := len(draws) * parts.settings.agentevol.samples):
        raise RunFolderError(
            f"{folder.trajectories} has {len(found)} of {wanted} episodes of the exploration after "
            f"step {step}: restore the files explore*_{step:06d}*.jsonl. With several processes, each "
            "must see the files of the others"
        )
    return found


def _tasks_of_round(parts: AgentEvolParts, number: int) -> list[Task]:
    """Returns the tasks of exploration `number`; the first exploration has number 1."""
    _, schedule = parts.data
    count = parts.settings.agentevol.tasks_per_round
    if count:
        return schedule.at(number - 1, count)
    entries = parts.settings.agent.environments
    tasks = parts.agent.environments.train_tasks
    return [task for task in tasks if entries[task.environment].weight]


def _collect(
    run: Run, parts: AgentEvolParts, draws: Sequence[tuple[Task, int]], step: int, phase: str
) -> list[Trajectory]:
    """Returns the episodes of tasks, given each with its number of earlier draws in the round."""
    settings, sampling = parts.settings.agentevol, parts.settings.sampling
    # a task drawn again needs unused sample numbers, also for its replacement samples
    span = settings.samples * (1 + parts.settings.agent.rollout.max_replacements)
    requests = [
        EpisodeRequest(
            task=task,
            sample=earlier * span + sample,
            seed=run.seed,
            step=step,
            limits=EpisodeLimits(
                max_turns=settings.explore[task.environment]["max_turns"],
                max_tokens=sampling.max_tokens,
                max_parse_errors=parts.settings.agent.rollout.max_parse_errors,
            ),
            sampling=sampling,
        )
        for task, earlier in draws
        for sample in range(settings.samples)
    ]
    episodes, _ = collect_shared(
        parts.agent.collector,
        requests,
        replacement_stride=settings.samples,
        on_progress=run.progress(phase),
        should_stop=run.should_stop,
    )
    if is_stopped(episodes):
        raise StopRequested(f"stopped while exploring after step {step}")
    return episodes


def _exploration_metrics(explored: Sequence[Trajectory], kept: Sequence[Trajectory]) -> Metrics:
    """Returns metrics of an exploration. Every step of the fit logs them."""
    valid = [t for t in explored if t.outcome.is_valid]
    num_tasks = len({t.item_id for t in explored})
    metrics = {
        "agentevol/explored": float(len(explored)),
        "agentevol/kept": float(len(kept)),
        "agentevol/kept_fraction": len(kept) / max(1, len(valid)),
        "agentevol/kept_tasks": len({t.item_id for t in kept}) / max(1, num_tasks),
        "rollout/episodes": float(len(explored)),
        "rollout/invalid_fraction": 1.0 - len(valid) / max(1, len(explored)),
    }
    if not valid:
        return metrics
    metrics["rollout/success"] = float(np.mean([t.success for t in valid]))
    metrics["rollout/turns_mean"] = float(np.mean([len(t.turns) for t in valid]))
    successes: dict[str, list[bool]] = {}
    for t in valid:
        successes.setdefault(t.environment, []).append(t.success)
    if len(successes) > 1:
        for name, own in sorted(successes.items()):
            metrics[add_environment("rollout/success", name)] = float(np.mean(own))
    return metrics
