"""Held-out evaluations of a run: decoding modes, task groups, intervals, and paired changes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from agentgym_jax.checks.limits import Range, check_field
from agentgym_jax.data.tasks import group_label
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.evaluation.compare import compare_episodes
from agentgym_jax.evaluation.scores import EpisodeScore, read_scores, summarise_group
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.viewer.records import TrajectoryFile

SAMPLED, GREEDY = "sampled", "greedy"
Row = Mapping[str, Any]
Rows = Sequence[Row]


def value_of(config: Any, *path: str) -> Any:
    """Returns the value at a path of keys; None if a key is missing."""
    for key in path:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Episodes of one evaluation in one decoding mode."""

    step: int
    mode: str  # SAMPLED or GREEDY
    episodes: Sequence[EpisodeScore]
    places: Sequence[int]  # index of each episode among all episodes of the run


def decoding_mode(config: Any) -> Callable[[int], str]:
    """Returns the function from the sample number of an evaluation episode to its decoding mode.

    The greedy episode of a task follows its sampled ones. A replacement of a failed episode has the
    same number modulo the number of episodes per task.
    """
    samples = value_of(config, "evaluation", "samples") or 0
    has_greedy = bool(value_of(config, "evaluation", "greedy"))
    if value_of(config, "sampling", "temperature") == 0:
        return lambda sample: GREEDY
    if not has_greedy:
        return lambda sample: SAMPLED
    return lambda sample: GREEDY if sample % (samples + 1) == samples else SAMPLED


def task_groups(folder: RunFolder, config: Any) -> Callable[[Row], str]:
    """Returns the function from a row to the group of its task.

    The groups are those of the config's `residues`, otherwise those of scores.json. The name of the
    environment is the group of any other task.
    """
    environments = value_of(config, "environments") or {}
    is_mixture = len(environments) > 1
    names: dict[str, tuple[int, dict[int, str]]] = {}
    for environment, settings in environments.items():
        for part in ("eval", "train"):
            tasks = value_of(settings, part)
            if value_of(tasks, "kind") == "residues":
                modulus, groups = value_of(tasks, "modulus"), value_of(tasks, "groups")
                place = f"{folder.config_path}, environments.{environment}.{part}"
                check_field(place, "modulus", modulus, Annotated[int, Range(1)])
                check_field(place, "groups", groups, Mapping[str, int])
                _, known = names.get(environment, (0, {}))
                known |= {number: group for group, number in groups.items()}
                names[environment] = (modulus, known)
    scored: dict[str, str] = {}
    if folder.scores_path.exists():
        scored = {e.item_id: e.group for e in read_scores(folder.scores_path)[1]}

    def group(row: Row) -> str:
        environment, number = row["environment"], row["number"]
        modulus, known = names.get(environment, (1, {}))
        found = None if number is None else known.get(number % modulus)
        found = found or scored.get(row["item"]) or environment
        return group_label(environment, found, is_mixture=is_mixture)

    return group


def evaluations_of(files: Sequence[TrajectoryFile], rows: Sequence[Rows]) -> list[Evaluation]:
    """Returns the evaluations in the order of the files; rows have `group` and `mode`."""
    found, first = [], 0
    for file, part in zip(files, rows, strict=True):
        for mode in (SAMPLED, GREEDY) if file.kind == "eval" else ():
            own = [(first + i, row) for i, row in enumerate(part) if row["mode"] == mode]
            if own:
                episodes = [_score(row) for _, row in own]
                found.append(Evaluation(file.step, mode, episodes, [place for place, _ in own]))
        first += len(part)
    return found


def _score(row: Row) -> EpisodeScore:
    return EpisodeScore(
        item_id=row["item"],
        group=row["group"],
        sample=row["sample"],
        success=bool(row["success"]),
        score=row["score"],
        turns=row["turns"],
        outcome=Outcome(row["outcome"]),
    )


def evaluation_table(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Returns one entry per evaluation and mode, with the interval of its success rate."""
    keys = ("tasks", "episodes", "invalid", "success", "success_interval", "score_mean")
    table = []
    for evaluation in evaluations:
        summary = summarise_group(evaluation.episodes)
        numbers = {key: summary[key] for key in (*keys, "turns_mean")}
        table.append({"step": evaluation.step, "mode": evaluation.mode} | numbers)
    return table


def _by_mode(evaluations: Sequence[Evaluation]) -> list[list[Evaluation]]:
    """Returns the sampled and the greedy evaluations."""
    return [[each for each in evaluations if each.mode == mode] for mode in (SAMPLED, GREEDY)]


def first_and_last(
    evaluations: Sequence[Evaluation],
) -> list[tuple[Evaluation, Evaluation]]:
    """Returns the first and the last evaluation of each mode with at least two evaluations."""
    return [(own[0], own[-1]) for own in _by_mode(evaluations) if len(own) > 1]


def last_of_each_mode(
    a: Sequence[Evaluation], b: Sequence[Evaluation]
) -> list[tuple[Evaluation, Evaluation]]:
    """Returns the last evaluations of two runs, for each mode that both runs have."""
    sides = zip(_by_mode(a), _by_mode(b), strict=True)
    return [(ours[-1], theirs[-1]) for ours, theirs in sides if ours and theirs]


def paired_change(a: Evaluation, b: Evaluation) -> dict[str, Any] | None:
    """Returns the paired difference of two evaluations, overall and by group.

    Every entry has the success rates of both sides with their intervals. The result is None if the
    evaluations have no task with valid episodes in common.
    """
    found = compare_episodes(a.episodes, b.episodes, lambda episode: episode.group)
    if found["overall"] is None:
        return None
    common = {e.item_id for e in b.episodes}
    group_of = {e.item_id: e.group for e in a.episodes if e.item_id in common}

    def numbers(difference: Mapping[str, Any], group: str | None) -> dict[str, Any]:
        items = {item for item, own in group_of.items() if group in (None, own)}
        summaries = [
            summarise_group([e for e in side.episodes if e.item_id in items]) for side in (a, b)
        ]
        low_high = {
            f"interval_{n}": s["success_interval"] for n, s in zip("ab", summaries, strict=True)
        }
        return {**difference, **low_high}

    return {
        "mode": a.mode,
        "step_a": a.step,
        "step_b": b.step,
        **numbers(found["overall"], None),
        "groups": [
            {"group": group, **numbers(difference, group)}
            for group, difference in found["groups"].items()
            if difference is not None
        ],
    }


def last_results(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Returns the results of the last evaluation of each mode, overall and by group.

    The keys are those of `paired_change` for the second evaluation.
    """
    found = []
    for last in (own[-1] for own in _by_mode(evaluations) if own):
        groups: dict[str, list[EpisodeScore]] = {}
        for episode in last.episodes:
            groups.setdefault(episode.group, []).append(episode)
        parts = [{"group": g, **_results(part)} for g, part in sorted(groups.items())]
        total = _results(last.episodes)
        found.append({"mode": last.mode, "step_b": last.step, **total, "groups": parts})
    return found


def _results(episodes: Sequence[EpisodeScore]) -> dict[str, Any]:
    summary = summarise_group(episodes)
    results = {"success_b": summary["success"], "interval_b": summary["success_interval"]}
    return {"tasks": summary["tasks"], **results}
