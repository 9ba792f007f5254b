"""Evaluation job: runs the episodes of an agent and writes its scores."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import logging

from agentgym_jax.config.sections import ConfigError, config_errors
from agentgym_jax.episodes.trajectory import Trajectory
from agentgym_jax.evaluation import compare, score_report, scores, text_agents
from agentgym_jax.evaluation.contamination import TrainingData, find_leakage, read_training_data
from agentgym_jax.evaluation.journal import Journal, Key
from agentgym_jax.evaluation.play import Evaluation, evaluate
from agentgym_jax.evaluation.task_identity import Items, item_facts
from agentgym_jax.jobs import as_trained, evaluation
from agentgym_jax.jobs.device_errors import device_errors
from agentgym_jax.jobs.evaluation import AgentKind, EvaluationParts
from agentgym_jax.jobs.run import StopFlag, StopRequested
from agentgym_jax.rollout.agents import TextAgent, TextRows
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.rollout.scheduler import EpisodeCollector
from agentgym_jax.runs import redact


def run_evaluation(
    config: Mapping[str, Any],
    model: str,
    workdir: str,
    *,
    overridden: Collection[str] = (),
    environments: Sequence[str] = (),
    same_tasks_as: str | None = None,
) -> compare.Result:
    """Evaluates an agent and writes its scores, separately for sampled and greedy episodes.

    If the folder has episodes of the same evaluation, only the others are run.

    Raises:
      ConfigError: The config is invalid, or the folder has another evaluation.
      AgentError: The chat endpoint cannot be used.
      StopRequested: SIGTERM or Ctrl-C ended the evaluation, which can be resumed.
    """
    if "job" in config:
        raise ConfigError(
            "this config is for training (config.job). To evaluate on its held-out tasks: "
            "--config=configs/eval/held_out.py:of=FILE"
        )
    chosen = {**config, "model": {**config["model"], "source": model, "architecture": {}}}
    chosen = evaluation.select_environments(chosen, environments)
    run_folder = evaluation.run_folder(chosen)
    changed: dict[str, Any] = {}
    if run_folder is not None:
        chosen, changed = as_trained.take_over(chosen, run_folder, overridden)
    if evaluation.find_agent_kind(model) is AgentKind.ENDPOINT:
        # raises an error before an address that contains a password is written
        text_agents.check_address(model)
    with (
        StopFlag().installed() as stop,
        device_errors(chosen),
        evaluation.open_evaluation(chosen, workdir) as parts,
    ):
        if changed:
            values = ", ".join(f"{key}={value!r}" for key, value in changed.items())
            parts.console.fact("as trained", redact.text(values))
        try:
            return _run(chosen, parts, stop, same_tasks_as)
        except text_agents.AgentStopped as stopped:
            raise StopRequested(str(stopped)) from stopped


def _run(
    config: Mapping[str, Any], parts: EvaluationParts, stop: StopFlag, same_tasks_as: str | None
) -> compare.Result:
    """Runs the missing episodes, then writes the scores; a stop raises AgentStopped."""
    tasks = parts.environments.eval_tasks
    items = item_facts(tasks, parts.task_lists)
    agent = None if parts.kind is AgentKind.MODEL else _text_agent(parts, stop)
    identity = dict(parts.identity)
    if isinstance(agent, text_agents.EndpointAgent):
        identity["model"] = agent.model
    journal, finished = _resume(parts, items, identity, same_tasks_as)
    num_episodes = parts.evaluation.episodes(len(tasks))
    if finished:
        logging.warning("%d of %d episodes are on disk", len(finished), num_episodes)
    is_complete = len(finished) == num_episodes  # then no model has to be loaded
    collector = None if is_complete else _collector(config, parts, agent)
    parts.folder.begin()
    result = evaluate(
        collector,
        tasks,
        parts.evaluation,
        seed=parts.seed,
        step=0,
        max_turns=parts.settings.evaluation_turns,
        sampling=parts.settings.sampling,
        max_parse_errors=parts.settings.rollout.max_parse_errors,
        on_progress=lambda done, total, tokens: parts.console.phase(
            "evaluation", done, total, f"{tokens:,} tokens" if tokens else ""
        ),
        should_stop=stop,
        finished=finished,
        on_episode=journal.append,
    )
    if stop():
        raise text_agents.AgentStopped("stopped during the evaluation")
    journal.finish(result.trajectories)
    return _write(parts, result, items, identity)


def _resume(
    parts: EvaluationParts, items: Items, identity: dict, same_tasks_as: str | None
) -> tuple[Journal, dict[Key, Trajectory]]:
    """Returns the journal and its episodes; raises ConfigError if the folder belongs to another
    evaluation, or if the tasks are not those of `same_tasks_as`.
    """
    manifests = dict(parts.environments.manifests)
    digests = {item: row["digest"] for item, row in items.items()}
    journal = Journal(parts.folder, {"agent": identity, "manifests": manifests, "items": digests})
    with config_errors("", OSError):
        if same_tasks_as is not None:
            compare.check_same_tasks(same_tasks_as, manifests, items)
        journal.open()
        return journal, journal.finished(parts.evaluation.episodes(1))


def _collector(
    config: Mapping[str, Any], parts: EvaluationParts, agent: TextAgent | None
) -> EpisodeCollector:
    """Returns the collector of a text agent, or that of the model after loading its weights."""
    if agent is None:
        return evaluation.build_evaluated_agent(config, parts).collector
    return Collector(
        rows=TextRows(agent),
        pool=parts.environments.pool,
        environments=parts.environments.texts,
        prefetch=0,
        max_attempts=parts.settings.rollout.max_attempts,
        max_replacements=parts.settings.rollout.max_replacements,
        show_turn_budget=parts.settings.rollout.show_turn_budget,
        restart_dead_servers=parts.environments.restart_dead_servers,
    )


def _text_agent(parts: EvaluationParts, stop: StopFlag) -> TextAgent:
    """Returns the text agent: a scripted or random agent, or an endpoint."""
    if parts.kind is AgentKind.ENDPOINT:
        if parts.settings.sampling.top_k:
            raise ConfigError(
                "config.sampling.top_k: chat endpoints have no such field; set it to 0"
            )
        return text_agents.EndpointAgent(parts.name, parts.settings.endpoint, stop)
    clients = parts.environments.clients.items()
    return text_agents.ScriptedAgent(
        {name: client.facts.actions.format for name, client in clients}
    )


def _write(
    parts: EvaluationParts, result: Evaluation, items: Items, identity: dict
) -> compare.Result:
    """Writes scores.json; sampled and greedy episodes are scored separately."""
    training = None if parts.run_folder is None else read_training_data(parts.run_folder)
    is_scripted = parts.kind in (AgentKind.EXPERT, AgentKind.RANDOM)
    if is_scripted:
        training = TrainingData("a scripted agent, which learns nothing")
    for mode, episodes in (("sampled", result.sampled), ("greedy", result.greedy)):
        if not episodes:
            continue
        name = "scores.json" if mode == "sampled" or not result.sampled else f"scores_{mode}.json"
        decoding = {
            "mode": mode,
            "temperature": parts.settings.sampling.temperature if mode == "sampled" else 0.0,
            "max_turns": parts.settings.evaluation_turns,
            "show_turn_budget": parts.settings.rollout.show_turn_budget,
            "max_tokens": parts.settings.sampling.max_tokens,
            "seed": parts.seed,
        }
        if is_scripted:
            decoding |= {"mode": str(parts.kind), "temperature": None, "max_tokens": None}
        facts = score_report.score_facts(
            episodes,
            items,
            max_turns=parts.settings.evaluation_turns,
            show_turn_budget=parts.settings.rollout.show_turn_budget,
            is_sampled=mode == "sampled",
            leakage=find_leakage(items, result.trajectories, episodes, training),
        )
        scores.write_scores(
            parts.folder.path / name,
            episodes,
            model=parts.name,
            decoding=decoding,
            manifests=parts.environments.manifests,
            facts={"agent": identity, **facts},
        )
    return compare.load_folder(parts.folder.path)
