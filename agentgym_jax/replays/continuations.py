"""Collects continuations of a recorded episode, all of them at the same time."""

import contextlib
import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from agentgym_jax.config.agent import AgentSettings
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Trajectory, to_record
from agentgym_jax.jobs.environments import open_environments
from agentgym_jax.jobs.sampled_agents import SampledAgent
from agentgym_jax.learner.stored_weights import fingerprint
from agentgym_jax.replays import credit
from agentgym_jax.replays.credit import TurnCredit, Value
from agentgym_jax.replays.recorded_episodes import (
    RecordedEpisode,
    ReplayError,
    check_repeatable,
    find_episode,
    limits_of,
    sampling_of,
)
from agentgym_jax.replays.replay_policy import (
    PolicyChoice,
    build_policy,
    choose_policy,
    parse_run,
)
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.rollout.episode import AgentTurn, Continuation, EpisodeRequest
from agentgym_jax.runs import bucket
from agentgym_jax.runs.run_folder import RunFolder

EVERY_TURN_BRANCHES = 8  # continuations per turn if their number is not given


@dataclasses.dataclass(frozen=True)
class ReplayOptions:
    """Request for a replay.

    Attributes:
      episode: Name of the recorded episode, such as `step_000012/3`.
      turn: Number of the first turn that is not repeated, from 1; None continues from every turn.
      branches: Number of continuations per turn, with new random keys; None for one continuation
        with the recorded key, or for `EVERY_TURN_BRANCHES` from every turn.
      action: First action, or first reply, of the continuations; None lets the policy decide.
      model: Model that continues; None for the run's own policy.
      step: Step of the run's checkpoint; None for the newest checkpoint.
      is_greedy: Continues greedily.
      max_turns: Turn limit; None for that of the recorded episode.
    """

    episode: str
    turn: int | None
    branches: int | None = None
    action: str | None = None
    model: str | None = None
    step: int | None = None
    is_greedy: bool = False
    max_turns: int | None = None

    def __post_init__(self) -> None:
        if self.turn is None and self.action is not None:
            raise ReplayError(
                "--action replaces the action of one turn: give --turn, not --every_turn"
            )
        if self.model is not None and self.step is not None:
            raise ReplayError("--model and --step: give only one of them")
        if self.is_greedy and (self.branches or 1) > 1:
            raise ReplayError(
                f"--branches={self.branches}: greedy continuations are all the same; leave out one"
            )

    @property
    def numbers(self) -> Sequence[int]:
        """Returns the numbers of the continuations from one turn (`Continuation.number`)."""
        if self.branches is None and self.turn is not None:
            return (0,)
        default = 1 if self.is_greedy else EVERY_TURN_BRANCHES
        return range(1, (self.branches or default) + 1)


@dataclasses.dataclass(frozen=True)
class Replay:
    """Continuations of an episode.

    Attributes:
      recorded: Recorded episode.
      policy: Name of the weights that continued.
      continuations: Number of its first turn and its place in the request, with each episode.
      credits: Values before and after the turns.
    """

    recorded: RecordedEpisode
    policy: str
    continuations: Sequence[tuple[Continuation, Trajectory]]
    credits: Sequence[TurnCredit]

    def records(self) -> list[dict[str, Any]]:
        """Returns the records of the episodes, with the key `replay`."""
        return [
            to_record(trajectory)
            | {
                "replay": {
                    "episode": self.recorded.name,
                    "turn": continuation.turn,
                    "number": continuation.number,
                    "is_forced": continuation.forced is not None,
                    "policy": self.policy,
                }
            }
            for continuation, trajectory in self.continuations
        ]

    def document(self) -> dict[str, Any]:
        """Returns the values and credits of the turns as JSON types."""
        t = self.recorded.trajectory
        return {
            "episode": self.recorded.name,
            "item_id": t.item_id,
            "sample": t.sample,
            "policy": self.policy,
            "turns": [turn.to_row() for turn in self.credits],
        }


def open_run_folder(run: str) -> RunFolder:
    """Returns a local run folder; raises ReplayError for a bucket."""
    if bucket.is_url(run):
        raise ReplayError(f"{run}: a replay needs a local run folder; copy it here first")
    return RunFolder(run)


def target_of(
    folder: RunFolder, options: ReplayOptions, out: str | None, *, overwrite: bool
) -> pathlib.Path:
    """Returns the file of the continuations: `out`, or a file in the run folder.

    A replay of one turn gets a name that is free, so that several actions can be tried in turn.
    With `overwrite` it gets the name of the first.

    Raises:
      ReplayError: There is no such episode, or `out` is the name of the table beside the file.
    """
    if out is not None:
        target = pathlib.Path(out).expanduser()
        if target.suffix == ".json":
            raise ReplayError(
                f"--out={out}: the table of the turns gets this name; give NAME.jsonl"
            )
        return target
    name = find_episode(folder, options.episode).name.replace("/", "_")
    replays = folder.path / "replays"
    if options.turn is None:
        return replays / f"{name}.jsonl"
    name = f"{name}_turn_{options.turn}"
    target = replays / f"{name}.jsonl"
    number = 1
    while target.exists() and not overwrite:
        number += 1
        target = replays / f"{name}_{number}.jsonl"
    return target


def replay(
    folder: RunFolder,
    options: ReplayOptions,
    *,
    on_policy: Callable[[str], object],
    on_progress: Callable[[int, int, int], None],
    should_stop: Callable[[], bool],
) -> Replay:
    """Repeats a recorded episode up to one or each of its turns, and continues from there.

    `on_policy` gets a sentence about the weights before any episode starts.

    Raises:
      ReplayError: The episode or the options are invalid.
      RecordDiffersError: The environment answers differently than in the record.
    """
    config, settings, agent_settings = parse_run(folder)
    recorded = find_episode(folder, options.episode)
    turns = _turns(recorded, options)
    check_repeatable(recorded, agent_settings, turns[-1])
    limits = limits_of(recorded, agent_settings, folder, options.max_turns)
    if limits.max_turns < turns[-1]:
        raise ReplayError(f"--max_turns={limits.max_turns} is below turn {turns[-1]}")
    choice = choose_policy(folder, config, settings.model, step=options.step, model=options.model)
    on_policy(describe_weights(folder, recorded, turns, choice))
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="agentgym_jax-"))
        scratch = RunFolder(temporary)
        scratch.logs.mkdir()
        agent_settings = _only(agent_settings, recorded.trajectory.environment)
        environments = open_environments(stack, agent_settings, scratch)
        agent = build_policy(
            choice, config, settings.tokenizer, agent_settings, environments, scratch, folder
        )
        environment, _, data_idx = recorded.trajectory.item_id.rpartition("_")
        forced = _force(options.action, agent, environment)
        sampling = sampling_of(recorded, agent_settings)
        requests = [
            EpisodeRequest(
                task=Task(environment, int(data_idx), environment),
                sample=recorded.trajectory.sample,
                seed=config["seed"],
                step=recorded.key_step,
                limits=limits,
                sampling=sampling.greedy() if options.is_greedy else sampling,
                continuation=Continuation(recorded.trajectory, turn, forced, number),
            )
            for turn in turns
            for number in options.numbers
        ]
        episodes = _collect(agent, requests, on_progress, should_stop)
    pairs = [
        (request.continuation, dataclasses.replace(episode, step=recorded.trajectory.step))
        for request, episode in zip(requests, episodes, strict=True)
        if request.continuation is not None
    ]
    return Replay(recorded, choice.name, pairs, _credits(recorded.trajectory, turns, pairs))


def _turns(recorded: RecordedEpisode, options: ReplayOptions) -> Sequence[int]:
    """Returns the turns to continue from; turn 1 also for an episode without turns."""
    if options.turn is not None:
        return (options.turn,)
    return range(1, max(1, len(recorded.trajectory.turns)) + 1)


def describe_weights(
    folder: RunFolder, recorded: RecordedEpisode, turns: Sequence[int], choice: PolicyChoice
) -> str:
    """Returns a sentence about the weights that sampled an episode and those that continue it.

    The records of an evaluation do not know the step of its model, but `evaluation.json` does.
    """
    if not folder.evaluation_path.exists():
        found = ", ".join(map(str, sorted({recorded.version(turn) for turn in turns})))
        sampled, name = f"the weights of step {found}", f"those of {choice.name}"
    else:
        facts = json.loads(folder.evaluation_path.read_text(encoding="utf-8"))["identity"]["agent"]
        now = {"name": choice.name} if choice.source is None else fingerprint(choice.source)
        sampled, name = _model_name(facts), _model_name(now)
        name += "" if facts == now or sampled != name else " with other weights"
    return f"{recorded.name}: sampled by {sampled}; continued by {name}"


def _model_name(facts: Mapping[str, Any]) -> str:
    return f"{facts['name']}, step {facts['step']}" if "step" in facts else facts["name"]


def _only(settings: AgentSettings, environment: str) -> AgentSettings:
    """Returns the settings with one environment, whose tasks are not selected."""
    entry = dataclasses.replace(settings.environments[environment], train={}, eval={})
    return dataclasses.replace(settings, environments={environment: entry})


def _force(action: str | None, agent: SampledAgent, environment: str):
    """Returns the first turn with a given action or reply; None if the policy decides.

    Raises:
      ReplayError: The text has no action.
    """
    if action is None:
        return None
    parse = agent.environments.texts[environment].parse
    text = action if parse(action).action is not None else f"Action: {action}"
    parsed = parse(text)
    if parsed.action is None:
        raise ReplayError(f"--action={action!r}: {parsed.problem}")
    tokens = np.asarray(agent.model.renderer.action(text), np.int32)
    logprobs = np.zeros(len(tokens), np.float32)
    return AgentTurn(row=-1, text=text, tokens=tokens, logprobs=logprobs, version=-1), parsed


def _collect(
    agent: SampledAgent,
    requests: Sequence[EpisodeRequest],
    on_progress: Callable[[int, int, int], None],
    should_stop: Callable[[], bool],
) -> list[Trajectory]:
    assert isinstance(agent.collector, Collector), "agent programs are refused before"
    # Another sample of the task would have another beginning.
    collector = dataclasses.replace(agent.collector, max_replacements=0)
    episodes, _ = collector.collect(
        requests, replacement_stride=1, on_progress=on_progress, should_stop=should_stop
    )
    return episodes


def _credits(
    recorded: Trajectory,
    turns: Sequence[int],
    pairs: Sequence[tuple[Continuation, Trajectory]],
) -> list[TurnCredit]:
    """Returns values and credits of the turns that were continued from."""
    by_turn: dict[int, list[Trajectory]] = {turn: [] for turn in turns}
    for continuation, trajectory in pairs:
        by_turn[continuation.turn].append(trajectory)
    values: Mapping[int, Value | None] = {n: credit.value_of(found) for n, found in by_turn.items()}
    forced = pairs[0][0].forced
    if forced is not None:  # the continuations start after the forced action
        return [TurnCredit(turns[0], forced[1].action, None, values[turns[0]])]
    if len(turns) == len(recorded.turns):
        values = {**values, len(recorded.turns) + 1: credit.final_value(recorded)}
    return [
        TurnCredit(turn, recorded.turns[turn - 1].action, values[turn], values.get(turn + 1))
        for turn in turns
    ]
