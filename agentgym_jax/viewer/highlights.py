"""Short list of the episodes of a run that are worth reading, each with a reason."""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentgym_jax.viewer.evaluations import Evaluation, first_and_last
from agentgym_jax.viewer.records import TrajectoryFile

_MAX_FIRSTS = 3  # episodes that are the first solved ones of their group
_RECENT = 5  # training steps from which current weaknesses are taken
_ERRORS = ("env_error", "program_error", "judge_error")
Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Place:
    """An episode with its place in the run."""

    number: int  # index among all episodes of the run
    step: int
    is_held_out: bool
    row: Row

    @property
    def when(self) -> str:
        """Returns the step in words, such as `evaluation 26, greedy`."""
        if self.is_held_out:
            return f"evaluation {self.step}, {self.row['mode']}"
        return f"step {self.step}"


def highlights(
    files: Sequence[TrajectoryFile],
    rows: Sequence[Sequence[Row]],
    evaluations: Sequence[Evaluation],
) -> list[dict[str, Any]]:
    """Returns the list: title, reason, `episode`, and `other` for a comparison or None.

    `episode` and `other` are indices among all episodes. Rows have `group` and `mode`.
    """
    places = list(_places(files, rows))
    training = [place for place in places if not place.is_held_out]
    steps = sorted({place.step for place in training})[-_RECENT:]
    recent = [place for place in training if place.step in steps]
    found = [
        *_first_solved(places),
        *_changed_tasks(places, evaluations),
        *_informative_group(recent),
        *_largest(
            recent,
            lambda row: row["advantage"] or 0.0,
            "Highest advantage",
            lambda place: (
                f"advantage {place.row['advantage']:.3g} at {place.when}: the policy was "
                "pushed most towards this episode"
            ),
        ),
        *_largest(
            recent or places,
            lambda row: row["parse_errors"],
            "Parse errors",
            lambda place: (
                f"{_turns(place.row['parse_errors'])} without a valid action, {place.when}"
            ),
        ),
        *_largest(
            recent or places,
            lambda row: row["repeated"],
            "Loop",
            lambda place: f"{_turns(place.row['repeated'])} repeat an earlier one, {place.when}",
        ),
        *_largest(
            places,
            lambda row: row["turns"] + row["tokens"] / 1e6,
            "Longest episode",
            lambda place: (
                f"{_turns(place.row['turns'])} and {place.row['tokens']} sampled tokens, "
                f"{place.when}"
            ),
        ),
        *_error(places),
    ]
    # an episode is listed again only next to another one
    listed = [{item["episode"] for item in found[:i]} for i in range(len(found))]
    return [
        item
        for item, before in zip(found, listed, strict=True)
        if item["other"] is not None or item["episode"] not in before
    ]


def _places(files: Sequence[TrajectoryFile], rows: Sequence[Sequence[Row]]) -> Iterator[Place]:
    number = 0
    for file, part in zip(files, rows, strict=True):
        for row in part:
            yield Place(number, file.step, file.kind == "eval", row)
            number += 1


def _item(title: str, why: str, place: Place, other: int | None = None) -> dict[str, Any]:
    return {"title": title, "why": why, "episode": place.number, "other": other}


def _first_solved(places: Sequence[Place]) -> Iterator[dict[str, Any]]:
    """Yields the first solved episode of groups that were unsolved when they first occurred."""
    first: dict[str, Place] = {}
    start: dict[str, int] = {}
    tried: dict[str, int] = defaultdict(int)
    for place in places:
        group = place.row["group"]
        start.setdefault(group, place.step)
        if group in first:
            continue
        if place.row["success"]:
            first[group] = place
        else:
            tried[group] += 1
    late = [(group, place) for group, place in first.items() if place.step > start[group]]
    for group, place in sorted(late, key=lambda pair: -pair[1].number)[:_MAX_FIRSTS]:
        why = f"first solved episode of {group}, {place.when}, after {tried[group]} unsolved ones"
        yield _item("First solved", why, place)


def _changed_tasks(
    places: Sequence[Place], evaluations: Sequence[Evaluation]
) -> Iterator[dict[str, Any]]:
    """Yields a held-out task that was lost and one that was won since the first evaluation."""
    titles = {False: "Regression", True: "Newly solved"}
    for is_won in (False, True):
        for before, after in first_and_last(evaluations):
            first, last = ([places[i] for i in side.places] for side in (before, after))
            old = {_key(place): place for place in first}
            pairs = [(old.get(_key(place)), place) for place in last]
            changed = [
                (a, b)
                for a, b in pairs
                if a is not None and b.row["success"] == is_won and a.row["success"] != is_won
            ]
            if changed:
                a, b = changed[0]
                states = ("unsolved", "solved") if is_won else ("solved", "unsolved")
                why = (
                    f"{len(changed)} of {len(after.places)} tasks were {states[0]} at {a.when} and "
                    f"are {states[1]} at {b.when}"
                )
                yield _item(titles[is_won], why, b, a.number)
                break


def _key(place: Place) -> tuple[str, int]:
    return place.row["item"], place.row["sample"]


def _informative_group(recent: Sequence[Place]) -> Iterator[dict[str, Any]]:
    """Yields a solved sample of the newest group whose success rate is nearest to one half."""
    groups: dict[tuple[int, str], list[Place]] = defaultdict(list)
    for place in recent:
        groups[place.step, place.row["item"]].append(place)
    mixed = [g for g in groups.values() if 0 < sum(p.row["success"] for p in g) < len(g)]
    if mixed:
        group = min(mixed, key=lambda g: (abs(_rate(g) - 0.5), -g[0].step))
        solved = next(place for place in group if place.row["success"])
        other = next(place for place in group if not place.row["success"])
        why = (
            f"{sum(p.row['success'] for p in group)} of {len(group)} samples solved the task at "
            f"{solved.when}: compare a solved with an unsolved one"
        )
        yield _item("Informative group", why, solved, other.number)


def _rate(group: Sequence[Place]) -> float:
    return sum(place.row["success"] for place in group) / len(group)


def _largest(
    places: Sequence[Place],
    value: Callable[[Row], float],
    title: str,
    why: Callable[[Place], str],
) -> Iterator[dict[str, Any]]:
    """Yields the latest episode with the largest positive value."""
    best = max(places, key=lambda p: (value(p.row), p.number), default=None)
    if best is not None and value(best.row) > 0:
        yield _item(title, why(best), best)


def _error(places: Sequence[Place]) -> Iterator[dict[str, Any]]:
    failed = [place for place in places if place.row["outcome"] in _ERRORS]
    if failed:
        words = failed[-1].row["outcome"].replace("_", " ")
        why = f"{len(failed)} episodes ended with an error, the last one ({words}) at "
        yield _item("Error", why + failed[-1].when, failed[-1])


def _turns(count: int) -> str:
    return f"{count} turn{'' if count == 1 else 's'}"
