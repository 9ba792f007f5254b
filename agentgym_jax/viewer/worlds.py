"""States of the environment along an episode, computed by replaying its actions."""

from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvError
from agentgym_jax.client.transport import Transport
from agentgym_jax.viewer.records import Record, environment_of

# Environments whose observations do not show the complete state. For others the page parses the
# observations (TextCraft's inventory, SciWorld's rooms).
REPLAYED = ("babyai", "maze")
# Replayed only on request: a turn takes about a second, and its picture has some tens of kilobytes.
WITH_BROWSER = ("webarena",)
State = Mapping[str, Any]


class ReplayError(Exception):
    """Error for an episode that cannot be replayed, or whose replay differs from the record."""


def worlds_of(record: Record, transports: Mapping[str, Transport]) -> list[State] | None:
    """Returns the states along an episode; None if the episode cannot be replayed here."""
    name, _ = environment_of(record["item_id"])
    if name not in transports:
        return None
    try:
        return replay(transports[name], record)
    except ReplayError as error:
        logging.warning("%s, sample %d: %s", record["item_id"], record["sample"], error)
        return None


def replay(transport: Transport, record: Record) -> list[State]:
    """Returns the states at the start and after every turn; raises ReplayError if an answer of
    the environment differs from the record.
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
            states = [client.ask(session, "/state").value(dict)]
            for turn in record["turns"]:
                if turn["action"] is None:  # no request was sent to the environment
                    states.append(states[-1])
                    continue
                if client.step(session, turn["action"]).text != turn["observation"]:
                    raise ReplayError("the answers of the environment differ from the record")
                states.append(client.ask(session, "/state").value(dict))
            return states
        finally:
            client.close(session)
    except EnvError as error:
        raise ReplayError(error.message) from error


def chosen_for_replay(
    files: Sequence[Sequence[Record]], limit: int, environments: Sequence[str] = REPLAYED
) -> set[tuple[int, int]]:
    """Returns (file number, row number) of at most `limit` episodes to replay.

    About half of the selection consists of all episodes of some tasks that occur in several files,
    so that these episodes can be compared. The other episodes are spread evenly over the run; the
    first sample of a task is preferred. `files` has the rows (`records.row_of`) of every file.
    """
    of_task: dict[str, list[tuple[int, int]]] = {}
    first: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    for file, rows in enumerate(files):
        for number, row in enumerate(rows):
            if row["environment"] in environments and row["number"] is not None:
                of_task.setdefault(row["item"], []).append((file, number))
                (first if row["sample"] == 0 else others).append((file, number))
    repeated = [places for places in of_task.values() if len({file for file, _ in places}) > 1]
    total = sum(map(len, repeated))
    chosen: set[tuple[int, int]] = set()
    for places in _spread(repeated, limit // 2 * len(repeated) // max(1, total)):
        if len(chosen) + len(places) <= limit // 2:
            chosen |= set(places)
    for places in (first, others):
        left = [place for place in places if place not in chosen]
        chosen |= set(_spread(left, limit - len(chosen)))
    return chosen


def _spread(places: Sequence[Any], limit: int) -> list[Any]:
    """Returns at most `limit` evenly spaced items of `places`."""
    if limit >= len(places):
        return list(places)
    return [places[i * len(places) // limit] for i in range(max(0, limit))]
