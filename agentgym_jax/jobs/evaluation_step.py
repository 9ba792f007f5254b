"""Evaluates held-out tasks during training and writes episodes and scores to files."""

import time

from agentgym_jax.evaluation import scores
from agentgym_jax.evaluation.evaluate import evaluate
from agentgym_jax.jobs.agents import SampledAgent
from agentgym_jax.jobs.config.agent import AgentSettings
from agentgym_jax.jobs.run import Run, StopRequested
from agentgym_jax.trajectory import to_record


def evaluate_step(
    run: Run, agent: SampledAgent, settings: AgentSettings, step: int
) -> dict[str, float]:
    """Evaluates the sampler's weights on all held-out tasks; writes trajectories and scores.json.

    Args:
      run: Run whose folder and console are used.
      agent: Agent whose sampler has the weights to evaluate.
      settings: Checked sections of the agent.
      step: Number of training steps done.

    Raises:
      StopRequested: The user requested a stop.
    """
    started = time.perf_counter()
    environments, sampling = agent.environments, settings.sampling
    result = evaluate(
        agent.collector,
        environments.eval_tasks,
        settings.evaluation,
        seed=run.seed,
        step=step,
        max_turns=settings.evaluation_turns,
        sampling=sampling,
        max_parse_errors=settings.rollout.max_parse_errors,
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
            "max_turns": settings.evaluation_turns,
            "show_turn_budget": agent.collector.show_turn_budget,
            "max_tokens": sampling.max_tokens,
            "seed": run.seed,
            "step": step,
        },
        manifests=environments.manifests,
    )
    run.console.evaluation(step, metrics)
    return metrics
