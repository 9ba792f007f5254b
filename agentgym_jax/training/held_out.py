"""A step's evaluation on held-out tasks: episodes, metrics, files."""

import time
from collections.abc import Mapping
from typing import Any

from agentgym_jax.evaluation import scores
from agentgym_jax.evaluation.evaluate import evaluate
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.run.environments import Environments
from agentgym_jax.run.playing import Players
from agentgym_jax.run.run import Run, StopRequested
from agentgym_jax.run.settings import EvaluationSettings
from agentgym_jax.sampling.sampler import SamplingOptions
from agentgym_jax.sharding import reshard
from agentgym_jax.trajectory import to_record


def evaluate_step(
    run: Run,
    collector: Collector,
    environments: Environments,
    settings: EvaluationSettings,
    *,
    step: int,
    max_turns: Mapping[str, int],
    sampling: SamplingOptions,
    max_invalid_actions: int,
) -> dict[str, float]:
    """Plays all held-out tasks with the sampler's weights; writes trajectories and scores.json.

    Args:
      run: whose folder and console are used.
      collector: with the weights to be scored in its sampler.
      environments: of the run.
      settings: how often to play a task.
      step: optimiser steps done.
      max_turns: of an episode, by environment.
      sampling: of the sampled episodes.
      max_invalid_actions: as in training.

    Raises:
      StopRequested: the run was asked to stop.
    """
    started = time.perf_counter()
    result = evaluate(
        collector,
        environments.eval_tasks,
        settings,
        seed=run.seed,
        step=step,
        max_turns=max_turns,
        sampling=sampling,
        max_invalid_actions=max_invalid_actions,
        on_progress=run.progress("evaluation"),
        should_stop=run.should_stop,
        pool=environments.pool,
    )
    if run.should_stop():
        raise StopRequested(f"stopped while evaluating after step {step}")
    metrics: dict[str, float] = {}
    for is_greedy, episodes in ((False, result.sampled), (True, result.greedy)):
        if episodes:
            metrics |= scores.eval_metrics(scores.summarise(episodes), greedy=is_greedy)
    metrics["time/eval_s"] = time.perf_counter() - started
    run.folder.write_trajectories(step, [to_record(t) for t in result.trajectories], kind="eval")
    scores.write_scores(
        run.folder.scores_path,
        result.sampled or result.greedy,
        model=run.folder.path.name,
        decoding={
            "mode": "sampled" if result.sampled else "greedy",
            "temperature": sampling.temperature,
            "max_turns": dict(max_turns),
            "tell_budget": collector.tell_budget,
            "max_tokens": sampling.max_tokens,
            "seed": run.seed,
            "step": step,
        },
        manifests=environments.manifests,
    )
    run.console.evaluation(step, metrics)
    return metrics


def give_weights(players: Players, params: Any, step: int) -> None:
    """Reshards the learner's weights for decoding, without a host copy."""
    weights = reshard(params, players.shardings, players.policy.dtype)
    players.sampler.set_params(weights, version=step)


def evaluate_offline(
    run: Run,
    players: Players,
    params: Any,
    step: int,
    *,
    sampling: SamplingOptions | None = None,
) -> dict[str, float]:
    """Held-out success of weights, for jobs that play only to explore and to evaluate.

    Args:
      run: whose folder and console are used.
      players: play the held-out tasks; without any there are no metrics.
      params: to be scored.
      step: optimiser steps done.
      sampling: of the sampled episodes, if not that of the config.
    """
    if not players.environments.eval_tasks:
        return {}
    give_weights(players, params, step)
    settings = players.settings
    return evaluate_step(
        run,
        players.collector,
        players.environments,
        settings.evaluation,
        step=step,
        max_turns=settings.evaluation_turns,
        sampling=settings.sampling if sampling is None else sampling,
        max_invalid_actions=settings.rollout.max_invalid_actions,
    )
