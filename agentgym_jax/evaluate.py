r"""Evaluates an agent on held-out tasks: writes scores.json and trajectories/, prints a table.

  python -m agentgym_jax.evaluate --config=configs/eval/quickstart.py --workdir=runs/eval \
      --model=runs/quickstart
  python -m agentgym_jax.evaluate --config=configs/eval/suite.py --workdir=runs/expert \
      --model=expert --environments=textcraft,babyai

The model is a run folder (its latest checkpoint), a Hugging Face directory or hub id, a preset,
`expert` (each environment's scripted agent), `random` (selects random valid actions), or the
address of an OpenAI-compatible chat endpoint such as http://127.0.0.1:8000/v1, whose key is in an
environment variable (config.endpoint.key_variable). The same command resumes an interrupted
evaluation. `python -m agentgym_jax.results` compares results.
"""

import sys

from absl import app, flags, logging
from ml_collections import config_flags

from agentgym_jax.evaluation import agents, report, scores
from agentgym_jax.evaluation.compare import check_same_tasks
from agentgym_jax.evaluation.contamination import find_leakage, read_training_data
from agentgym_jax.evaluation.evaluate import Evaluation, evaluate
from agentgym_jax.evaluation.journal import Journal, Key
from agentgym_jax.evaluation.task_identity import Items, item_facts
from agentgym_jax.jobs import as_trained as training_settings
from agentgym_jax.jobs import evaluation as opening
from agentgym_jax.jobs.config.sections import ConfigError, plain
from agentgym_jax.jobs.evaluation import AgentKind, EvaluationParts
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.rollout.agents import TextAgent, TextRows
from agentgym_jax.rollout.collect import Collector, EpisodeCollector
from agentgym_jax.startup import USER_ERRORS, launch, prepare
from agentgym_jax.telemetry import redact
from agentgym_jax.telemetry.console import open_console
from agentgym_jax.trajectory import Trajectory

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file, with its options after a colon.", lock_config=True
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for scores.json and trajectories/.")
_MODEL = flags.DEFINE_string("model", None, "Agent to evaluate, as described above.")
_ENVIRONMENTS = flags.DEFINE_list(
    "environments", [], "Environments of the config to use, such as textcraft,babyai; default all."
)
_SAME_TASKS_AS = flags.DEFINE_string(
    "same_tasks_as", None, "A scores.json; the evaluation is refused if its tasks are different."
)


def main(argv: list[str]) -> int:
    """Evaluates an agent on the config's tasks; returns the exit status."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}; flags start with --")
    if not _MODEL.value:
        raise app.UsageError("--model= is empty; name a model, `expert`, `random` or an address")
    prepare()
    config = plain(_CONFIG.value)
    config["model"] |= {"source": _MODEL.value, "architecture": {}}
    try:
        config = opening.select_environments(config, _ENVIRONMENTS.value)
        config = as_trained(config)
        if opening.find_agent_kind(_MODEL.value) is AgentKind.ENDPOINT:
            # raises an error before an address that contains a password is written
            agents.check_address(_MODEL.value)
        with (
            StopFlag().installed() as stop,
            opening.open_evaluation(config, _WORKDIR.value) as parts,
        ):
            try:
                run(config, parts, stop)
            except agents.AgentStopped:
                sys.stderr.write("\nstopped; run the same command to resume\n")
                return stop.exit_status
    except (*USER_ERRORS, agents.AgentError) as error:
        sys.stderr.write(f"\nagentgym_jax.evaluate: {redact.text(str(error))}\n")
        return 1
    return 0


def as_trained(config: dict) -> dict:
    """Returns the config; if `--model` is a run folder, with the prompts and limits of that run."""
    run_folder = opening.run_folder(config)
    if run_folder is None:
        return config
    overridden = config_flags.get_override_values(flags.FLAGS["config"])
    config, changed = training_settings.take_over(config, run_folder, overridden)
    if changed:
        values = ", ".join(f"{key}={value!r}" for key, value in changed.items())
        sys.stderr.write(f"as trained: {redact.text(values)}\n")
    return config


def run(config: dict, parts: EvaluationParts, stop: StopFlag) -> None:
    """Runs the missing episodes, then writes and prints the scores; a stop raises AgentStopped."""
    tasks = parts.environments.eval_tasks
    items = item_facts(tasks, parts.task_lists)
    agent = None if parts.kind is AgentKind.MODEL else text_agent(parts, stop)
    identity = dict(parts.identity)
    if isinstance(agent, agents.EndpointAgent):
        identity["model"] = agent.model
    journal, finished = resume(parts, items, identity)
    num_episodes = parts.evaluation.episodes(len(tasks))
    if finished:
        logging.warning("%d of %d episodes are on disk", len(finished), num_episodes)
    is_complete = len(finished) == num_episodes  # then no model has to be loaded
    parts.folder.begin()
    result = evaluate(
        None if is_complete else collector(config, parts, agent),
        tasks,
        parts.evaluation,
        seed=parts.seed,
        step=0,
        max_turns=parts.max_turns,
        sampling=parts.sampling,
        max_parse_errors=parts.rollout.max_parse_errors,
        on_progress=lambda done, total, tokens: parts.console.phase(
            "evaluation", done, total, f"{tokens:,} tokens" if tokens else ""
        ),
        should_stop=stop,
        finished=finished,
        on_episode=journal.append,
    )
    if stop():
        raise agents.AgentStopped("stopped during the evaluation")
    journal.finish(result.trajectories)
    write(parts, result, items, identity)


def resume(
    parts: EvaluationParts, items: Items, identity: dict
) -> tuple[Journal, dict[Key, Trajectory]]:
    """Returns the journal and its episodes; raises ConfigError if the folder belongs to another
    evaluation, or if the tasks are not those of --same_tasks_as.
    """
    manifests = dict(parts.environments.manifests)
    digests = {item: row["digest"] for item, row in items.items()}
    journal = Journal(parts.folder, {"agent": identity, "manifests": manifests, "items": digests})
    try:
        if _SAME_TASKS_AS.value is not None:
            check_same_tasks(_SAME_TASKS_AS.value, manifests, items)
        journal.open()
        return journal, journal.finished(parts.evaluation.episodes(1))
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error


def collector(config: dict, parts: EvaluationParts, agent: TextAgent | None) -> EpisodeCollector:
    """Returns the collector of a text agent, or that of the model after loading its weights."""
    if agent is None:
        return opening.build_evaluated_agent(config, parts).collector
    return Collector(
        TextRows(agent),
        parts.environments.pool,
        parts.environments.texts,
        prefetch=0,
        max_attempts=parts.rollout.max_attempts,
        max_replacements=parts.rollout.max_replacements,
        show_turn_budget=parts.rollout.show_turn_budget,
        restart_dead_servers=parts.environments.restart_dead_servers,
    )


def text_agent(parts: EvaluationParts, stop: StopFlag) -> TextAgent:
    """Returns the text agent: a scripted or random agent, or an endpoint."""
    if parts.kind is AgentKind.ENDPOINT:
        if parts.sampling.top_k:
            raise ConfigError(
                "config.sampling.top_k: chat endpoints have no such field; set it to 0"
            )
        return agents.EndpointAgent(parts.name, parts.endpoint, stop)
    clients = parts.environments.clients.items()
    return agents.ScriptedAgent({name: client.facts.actions.format for name, client in clients})


def write(parts: EvaluationParts, result: Evaluation, items: Items, identity: dict) -> None:
    """Writes scores.json and prints a table; sampled and greedy episodes are scored separately."""
    training = None if parts.run_folder is None else read_training_data(parts.run_folder)
    console = open_console()
    for mode, episodes in (("sampled", result.sampled), ("greedy", result.greedy)):
        if not episodes:
            continue
        name = "scores.json" if mode == "sampled" or not result.sampled else f"scores_{mode}.json"
        decoding = {
            "mode": mode,
            "temperature": parts.sampling.temperature if mode == "sampled" else 0.0,
            "max_turns": dict(parts.max_turns),
            "show_turn_budget": parts.rollout.show_turn_budget,
            "max_tokens": parts.sampling.max_tokens,
            "seed": parts.seed,
        }
        if parts.kind in (AgentKind.EXPERT, AgentKind.RANDOM):
            decoding |= {"mode": str(parts.kind), "temperature": None, "max_tokens": None}
        facts = report.score_facts(
            episodes,
            items,
            max_turns=parts.max_turns,
            show_turn_budget=parts.rollout.show_turn_budget,
            is_sampled=mode == "sampled",
            leakage=find_leakage(items, result.trajectories, episodes, training),
        )
        document = scores.write_scores(
            parts.folder.path / name,
            episodes,
            model=parts.name,
            decoding=decoding,
            manifests=parts.environments.manifests,
            facts={"agent": identity, **facts},
        )
        console.print(report.score_table(document))
        for sentence in report.score_notes(document):
            console.print(sentence, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    launch(main, "config", "workdir", "model")
