"""Work of every training loop after a step: guards, evaluation, metrics, checkpoint."""

import collections
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_jax.config.agent import AgentSettings
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import to_record
from agentgym_jax.evaluation import scores
from agentgym_jax.evaluation.play import Evaluation, evaluate
from agentgym_jax.jobs.job import AnyParts
from agentgym_jax.jobs.run import LoopState, Run, StopRequested
from agentgym_jax.jobs.sampled_agents import SampledAgent
from agentgym_jax.learner.train_state import TrainState
from agentgym_jax.mesh import processes
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.rollout.scheduler import EpisodeCollector
from agentgym_jax.rollout.shared import gather_episodes, is_stopped, own_places
from agentgym_jax.telemetry import guards
from agentgym_jax.telemetry.guards import Finding, GuardStop

Metrics = dict[str, float]


def finish_step(
    run: Run,
    parts: AnyParts,
    before: LoopState,
    state: TrainState,
    metrics: Metrics,
    findings: Sequence[Finding],
    **changes: Any,
) -> LoopState:
    """Returns the loop state after a step, with `changes`; reports the findings of its guards."""
    run.warn(before.step + 1, guards.new_findings(findings, before.history))
    return LoopState(
        step=before.step + 1,
        state=state,
        unlogged=metrics | guards.guard_metrics(findings),
        history=guards.update_history(parts.settings.guards, before.history, metrics, findings),
        stop=guards.stop_reason(findings),
        **changes,
    )


def log_step(run: Run, parts: AnyParts, now: LoopState) -> LoopState:
    """Writes the metrics of the last step; evaluates the policy first if an evaluation is due."""
    written = dataclasses.replace(now, unlogged=None)
    if run.writer.last_step == now.step:  # the line was written after the checkpoint
        return written
    metrics = dict(now.unlogged or {})
    agent, settings = parts.agent, parts.settings.agent
    if (
        agent is not None
        and settings is not None
        and settings.evaluation.is_due(now.step, run.total_steps)
        and agent.environments.eval_tasks
    ):
        if agent.sampler.version != now.step:
            agent.set_params(now.state.params, version=now.step)
        metrics |= evaluate_step(run, agent, settings, now.step)
    if metrics:
        run.log_step(now.step, metrics)
    return written


def evaluate_step(run: Run, agent: SampledAgent, settings: AgentSettings, step: int) -> Metrics:
    """Evaluates the sampler's weights on held-out tasks; writes trajectories and scores.json."""
    started = time.perf_counter()
    environments, sampling = agent.environments, settings.sampling
    tasks = environments.eval_tasks
    play = functools.partial(
        evaluate,
        settings=settings.evaluation,
        seed=run.seed,
        step=step,
        max_turns=settings.evaluation_turns,
        sampling=sampling,
        max_parse_errors=settings.rollout.max_parse_errors,
        on_progress=run.progress("evaluation"),
        should_stop=run.should_stop,
    )
    if processes.count() == 1:
        result = play(agent.collector, tasks)
    else:
        stride = settings.evaluation.samples + settings.evaluation.greedy
        result = _evaluate_shared(play, agent.collector, tasks, stride)
    if is_stopped(result.trajectories):
        raise StopRequested(f"stopped while evaluating after step {step}")
    metrics: Metrics = {}
    for is_greedy, episodes in ((False, result.sampled), (True, result.greedy)):
        if episodes:
            metrics |= scores.eval_metrics(scores.summarise(episodes), greedy=is_greedy)
    metrics["time/eval_s"] = time.perf_counter() - started
    run.finish_records()  # files are written one after another
    own = processes.own_part(len(result.trajectories))
    run.folder.write_trajectories(step, [to_record(result.trajectories[i]) for i in own], "eval")
    if not processes.is_writer():
        return metrics
    scores.write_scores(
        run.folder.scores_path,
        result.sampled or result.greedy,
        model=run.folder.path.name,
        decoding={
            "mode": "sampled" if result.sampled else "greedy",
            "temperature": sampling.temperature,
            "max_turns": settings.evaluation_turns,
            "show_turn_budget": settings.rollout.show_turn_budget,
            "max_tokens": sampling.max_tokens,
            "seed": run.seed,
            "step": step,
        },
        manifests=environments.manifests,
    )
    run.console.evaluation(step, metrics)
    return metrics


def _evaluate_shared(
    play: Callable[..., Evaluation], collector: EpisodeCollector, tasks: Sequence[Task], stride: int
) -> Evaluation:
    """Evaluates on all processes, each on its own tasks; all get the whole result.

    `stride` is the number of episodes per task. Replacements have sample numbers above it.
    """
    own = [tasks[i] for i in own_places(tasks)]
    none = CollectStatistics(collections.Counter())
    found = gather_episodes(lambda: (play(collector, own).trajectories, none))
    episodes = [trajectory for trajectories, _ in found for trajectory in trajectories]
    return play(None, tasks, finished={(t.item_id, t.sample % stride): t for t in episodes})


def save_or_stop(run: Run, now: LoopState) -> None:
    """Saves a checkpoint if one is due; raises GuardStop or StopRequested if the run must end."""
    if run.is_save_due(now.step) or now.stop is not None:
        run.save(now)
    if now.stop is not None:
        raise GuardStop(f"stopped after step {now.step}, which is saved: {now.stop}")
    if run.should_stop.agreed():
        raise StopRequested(f"stopped after step {now.step}")
