"""Scores whoever plays: python -m agentgym_jax.evaluate --config=configs/eval/suite.py --workdir=DIR --model=M

M is a Hugging Face directory or hub id, a .gguf file, a run folder (its latest checkpoint), a preset;
`expert` (each environment's scripted player), `random` (any valid action), or the address of an
OpenAI-compatible chat endpoint such as http://127.0.0.1:8000/v1, whose key is read from an environment
variable (config.endpoint.key_variable). Writes scores.json, trajectories/ and a table; the same command goes on
where it was interrupted. Compare results with python -m agentgym_jax.results.
"""

import contextlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

from agentgym_jax import redact
from agentgym_jax.console import open_console
from agentgym_jax.evaluation import compare, contents, endpoint, leakage, report, scores, trained_on
from agentgym_jax.evaluation.endpoint import EndpointPlayer
from agentgym_jax.evaluation.evaluate import Evaluation, evaluate
from agentgym_jax.evaluation.journal import Journal, Key
from agentgym_jax.evaluation.play import TextCollector
from agentgym_jax.evaluation.players import Player, PlayerError, PlayerStopped, ScriptedPlayer
from agentgym_jax.evaluation.unplayable import Plays
from agentgym_jax.run import as_trained as training_settings
from agentgym_jax.run import evaluation as opening
from agentgym_jax.run.evaluation import Contestant, EvaluationParts
from agentgym_jax.run.run import StopFlag
from agentgym_jax.run.sections import ConfigError, plain
from agentgym_jax.sharding import reshard
from agentgym_jax.startup import USER_ERRORS, launch, prepare
from agentgym_jax.trajectory import Trajectory

_CONFIG = config_flags.DEFINE_config_file("config", None, "Config file.", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder for scores.json and trajectories/.")
_MODEL = flags.DEFINE_string("model", None, "Who is scored; see above.")
_ENVIRONMENTS = flags.DEFINE_list(
    "environments",
    [],
    "Which of the config's environments, such as textcraft,babyai; all if empty.",
)
_SAME_TASKS_AS = flags.DEFINE_string(
    "same_tasks_as", None, "A scores.json; refuse to play if its task manifests are other ones."
)


def main(argv: list[str]) -> int:
    """Plays the config's tasks; returns the exit status."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}; flags start with --")
    if not _MODEL.value:
        raise app.UsageError("--model= is empty; name a model, `expert`, `random` or an address")
    prepare()
    config = plain(_CONFIG.value)
    config["model"] |= {"source": _MODEL.value, "architecture": {}}
    try:
        config = opening.only(config, _ENVIRONMENTS.value)
        config = as_trained(config)
        if opening.contestant(_MODEL.value) is Contestant.ENDPOINT:
            endpoint.split_url(_MODEL.value)  # before an address with a password is written
        with StopFlag().installed() as stop, contextlib.ExitStack() as stack:
            parts = stack.enter_context(opening.open_evaluation(config, _WORKDIR.value))
            try:
                return run(config, parts, stop)
            except PlayerStopped:
                return _stopped(stop)
    except (*USER_ERRORS, PlayerError) as error:
        sys.stderr.write(f"\nagentgym_jax.evaluate: {redact.text(str(error))}\n")
        return 1


def as_trained(config: dict) -> dict:
    """Returns the config with the prompts and limits of the run, if `--model` is a run folder."""
    run_folder = opening.run_folder(config)
    if run_folder is None:
        return config
    overridden = config_flags.get_override_values(flags.FLAGS["config"])
    config, changed = training_settings.take_over(config, run_folder, overridden)
    if changed:
        values = ", ".join(f"{key}={value!r}" for key, value in changed.items())
        sys.stderr.write(f"as trained: {redact.text(values)}\n")
    return config


def run(config: dict, parts: EvaluationParts, stop: StopFlag) -> int:
    """Plays what is not on disk yet, writes and shows the scores."""
    items = contents.item_facts(parts.environments.eval_tasks, parts.task_lists)
    player = None if parts.contestant is Contestant.MODEL else text_player(parts, stop)
    identity = dict(parts.identity)
    if isinstance(player, EndpointPlayer):
        identity["model"] = player.model
    stride = parts.evaluation.samples + parts.evaluation.greedy
    journal, finished = resume(parts, items, identity, stride)
    tasks = parts.environments.eval_tasks
    if finished:
        logging.warning("%d of %d episodes are on disk", len(finished), len(tasks) * stride)
    everything = len(finished) == len(tasks) * stride
    players = _Nobody() if everything else collector(config, parts, player)
    parts.folder.begin()
    result = evaluate(
        players,
        tasks,
        parts.evaluation,
        seed=parts.seed,
        step=0,
        max_turns=parts.max_turns,
        sampling=parts.sampling,
        max_invalid_actions=parts.rollout.max_invalid_actions,
        on_progress=lambda done, total, tokens: parts.console.phase(
            "evaluation", done, total, f"{tokens:,} tokens" if tokens else ""
        ),
        should_stop=stop,
        pool=parts.environments.pool,
        finished=finished,
        on_episode=journal.append,
    )
    if stop():
        return _stopped(stop)
    journal.finish(result.trajectories)
    write(parts, result, items, identity)
    return 0


def _stopped(stop: StopFlag) -> int:
    """Says how to resume; returns the exit status of an interrupted process."""
    sys.stderr.write("\nstopped; run the same command to resume\n")
    return stop.exit_status


def resume(
    parts: EvaluationParts, items: contents.Items, identity: dict, stride: int
) -> tuple[Journal, dict[Key, Trajectory]]:
    """The episodes that are on disk already, and where further ones are kept.

    Raises:
      ConfigError: the folder, or the result of --same_tasks_as, is about something else.
    """
    manifests = dict(parts.environments.manifests)
    digests = {item: row["digest"] for item, row in items.items()}
    journal = Journal(
        parts.folder, {"contestant": identity, "manifests": manifests, "items": digests}
    )
    try:
        if _SAME_TASKS_AS.value is not None:
            compare.check_same_tasks(_SAME_TASKS_AS.value, manifests, items)
        journal.open(report.changed_identity)
        return journal, journal.finished(stride)
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error


class _Nobody:
    """Plays where everything was played already, so that no model need be loaded."""

    def collect(self, requests, **options):
        """Never called: `evaluate` asks for nothing."""
        raise AssertionError(f"{len(requests)} episodes are asked for")


def collector(config: dict, parts: EvaluationParts, player: Player | None) -> Plays:
    """What plays the episodes: the player, or without one the model with its weights."""
    if player is None:
        players = opening.build_players(config, parts)
        policy = players.model.decode_policy
        params = players.model.initial_params(parts.seed)
        players.sampler.set_params(
            reshard(params, players.decode_shardings, policy.dtype), version=0
        )
        return players.collector
    return TextCollector(
        player,
        parts.environments.pool,
        parts.environments.texts,
        max_attempts=parts.rollout.max_attempts,
        max_replacements=parts.rollout.max_replacements,
        tell_budget=parts.rollout.tell_budget,
        revive=parts.environments.revive,
    )


def text_player(parts: EvaluationParts, stop: StopFlag) -> Player:
    """The scripted player or the endpoint."""
    if parts.contestant is Contestant.ENDPOINT:
        if parts.sampling.top_k:
            raise ConfigError(
                "config.sampling.top_k: chat endpoints have no such field; set it to 0"
            )
        return EndpointPlayer(parts.name, parts.endpoint, stop)
    clients = parts.environments.clients
    formats = {name: client.upstream.actions.format for name, client in clients.items()}
    try:
        return ScriptedPlayer(formats)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def write(
    parts: EvaluationParts, result: Evaluation, items: contents.Items, identity: dict
) -> None:
    """scores.json and a table; sampled and greedy episodes apart."""
    training = None
    if parts.run_folder is not None:
        training = trained_on.read_trained_on(parts.run_folder)
    console = open_console()
    for mode, episodes in (("sampled", result.sampled), ("greedy", result.greedy)):
        if not episodes:
            continue
        name = "scores.json" if mode == "sampled" or not result.sampled else f"scores_{mode}.json"
        facts = report.facts(
            episodes,
            items,
            max_turns=parts.max_turns,
            tell_budget=parts.rollout.tell_budget,
            is_sampled=mode == "sampled",
            leaks=leakage.report(items, result.trajectories, episodes, training),
        )
        document = scores.write_scores(
            parts.folder.path / name,
            episodes,
            model=parts.name,
            decoding=_decoding(parts, mode),
            manifests=parts.environments.manifests,
            facts={"contestant": identity, **facts},
        )
        console.print(report.table(mode, document))
        for sentence in report.sentences(document):
            console.print(sentence, highlight=False, soft_wrap=True)


def _decoding(parts: EvaluationParts, mode: str) -> dict:
    """What the numbers depend on beside the tasks."""
    facts = {
        "mode": mode,
        "temperature": parts.sampling.temperature if mode == "sampled" else 0.0,
        "max_turns": dict(parts.max_turns),
        "tell_budget": parts.rollout.tell_budget,
        "max_tokens": parts.sampling.max_tokens,
        "seed": parts.seed,
    }
    if parts.contestant in (Contestant.EXPERT, Contestant.RANDOM):
        facts |= {"mode": str(parts.contestant), "temperature": None, "max_tokens": None}
    return facts


if __name__ == "__main__":
    launch(main, "config", "workdir", "model")
