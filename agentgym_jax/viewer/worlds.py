"""States of the world along an episode, found by playing its actions again.

A world is a function of the task and the actions, so a record needs no pictures. Text alone tells
the rest: TextCraft's inventory and SciWorld's rooms are read off the observations by the page.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.env_client.client import EnvClient
from agentgym_jax.env_client.errors import EnvError
from agentgym_jax.env_client.transport import Transport
from agentgym_jax.viewer.records import Record, environment_of

# Environments whose observations do not say how the whole world looks.
REPLAYED = ("babyai", "maze")
# Played again only when asked: a turn takes a second, and its picture some tens of kilobytes.
WITH_BROWSER = ("webarena",)
State = Mapping[str, Any]


class ReplayError(Exception):
    """The episode cannot be played again, or went another way."""


def can_replay(record: Record) -> bool:
    """Whether the page gains anything from replaying this episode."""
    name, number = environment_of(record["item_id"])
    return name in (*REPLAYED, *WITH_BROWSER) and number is not None


def replay(transport: Transport, record: Record) -> list[State]:
    """The state at the start and after every turn.

    Args:
      transport: to a server of the record's environment.
      record: a trajectory.

    Raises:
      ReplayError: the environment refuses, or answers otherwise than it did then.
    """
    name, number = environment_of(record["item_id"])
    if number is None:
        raise ReplayError(f"{record['item_id']} names no task")
    client = EnvClient(
        f"http://{name}", name, connect_timeout_s=1.0, step_timeout_s=60.0, transport=transport
    )
    try:
        session = client.create()
        try:
            client.reset(session, number)
            states = [client.ask(session, "/state")]
            for turn in record["turns"]:
                states.append(_after(client, session, turn, states[-1]))
            return states
        finally:
            client.close(session)
    except EnvError as error:
        raise ReplayError(error.message) from error


def _after(client: EnvClient, session: int, turn: Mapping[str, Any], before: State) -> State:
    if turn["action"] is None:  # the environment was never asked
        return before
    if client.step(session, turn["action"]).text != turn["observation"]:
        raise ReplayError("the environment now answers otherwise than the record says")
    return client.ask(session, "/state")


def chosen_for_replay(
    files: Sequence[Sequence[Record]], limit: int, environments: Sequence[str] = REPLAYED
) -> set[tuple[int, int]]:
    """Which episodes to replay when not all can be.

    About half are all episodes of some tasks that were played at several steps, so that these can
    be compared; the others are spread evenly over the run, one of each group first.

    Args:
      files: for every trajectory file, its rows (`records.row_of`) in order.
      limit: episodes in total.
      environments: whose episodes.

    Returns:
      (file, row) numbers.
    """
    of_task: dict[str, list[tuple[int, int]]] = {}
    first, others = [], []
    for file, rows in enumerate(files):
        for number, row in enumerate(rows):
            if row["environment"] in environments and row["number"] is not None:
                of_task.setdefault(row["item"], []).append((file, number))
                (first if row["sample"] == 0 else others).append((file, number))
    chosen = _of_repeated_tasks(list(of_task.values()), limit // 2)
    for places in (first, others):
        left = [place for place in places if place not in chosen]
        chosen |= set(_spread(left, limit - len(chosen)))
    return chosen


def _of_repeated_tasks(
    places_of_tasks: Sequence[list[tuple[int, int]]], limit: int
) -> set[tuple[int, int]]:
    """All episodes of as many tasks that occur in several files as `limit` allows."""
    repeated = [places for places in places_of_tasks if len({file for file, _ in places}) > 1]
    total = sum(map(len, repeated))
    chosen: set[tuple[int, int]] = set()
    for places in _spread(repeated, limit * len(repeated) // max(1, total)):
        if len(chosen) + len(places) <= limit:
            chosen |= set(places)
    return chosen


def _spread(places: Sequence[Any], limit: int) -> list[Any]:
    """At most `limit` of them at even distances."""
    if limit >= len(places):
        return list(places)
    return [places[i * len(places) // limit] for i in range(max(0, limit))]
