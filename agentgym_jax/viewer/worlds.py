"""States of the world along an episode, found by playing its actions again.

A world is a function of the task and the actions, so a record needs no pictures. Text alone tells
the rest: TextCraft's inventory and SciWorld's rooms are read off the observations by the page.
"""

import base64
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from agentgym_jax.viewer.records import Record, environment_of

# Environments whose observations do not say how the whole world looks.
REPLAYED = ("babyai", "maze")
_AMBIGUOUS = "G"  # minigrid draws a colour as its first letter: green and grey are the same
_THINGS = "ABDKL"  # ball, box, closed door, key, locked door


class Transport(Protocol):
    """The part of `env_client.in_process.InProcessTransport` that is needed here."""

    def exchange(
        self, method: str, target: str, request: Mapping[str, Any] | None, timeout_s: float | None
    ) -> tuple[int, bytes]:
        """Status and body of the answer."""


class ReplayError(Exception):
    """The episode cannot be played again, or went another way."""


def can_replay(record: Record) -> bool:
    """Whether the page gains anything from replaying this episode."""
    name, number = environment_of(record["item_id"])
    return name in REPLAYED and number is not None


def replay(transport: Transport, record: Record) -> list[dict[str, Any]]:
    """The state at the start and after every turn.

    Args:
      transport: to a server of the record's environment.
      record: a trajectory.

    Raises:
      ReplayError: the environment refuses, or answers otherwise than it did then.
    """
    session = _call(transport, "POST", "/create", {})["id"]
    try:
        number = environment_of(record["item_id"])[1]
        _call(transport, "POST", "/reset", {"id": session, "data_idx": number})
        states = [_state(transport, session)]
        greens = _Greens(states[0], lambda: _picture(transport, session))
        greens.mark(states[0])
        for turn in record["turns"]:
            states.append(_after(transport, session, turn, states[-1]))
            greens.mark(states[-1])
        return states
    finally:
        _call(transport, "POST", "/close", {"id": session})


def _after(
    transport: Transport, session: int, turn: Mapping[str, Any], before: dict[str, Any]
) -> dict[str, Any]:
    if turn["action"] is None:  # the environment was never asked
        return before
    answer = _call(transport, "POST", "/step", {"id": session, "action": turn["action"]})
    if "observation" in answer and answer["observation"] != turn["observation"]:
        raise ReplayError("the environment now answers otherwise than the record says")
    return _state(transport, session)


def _state(transport: Transport, session: int) -> dict[str, Any]:
    return _call(transport, "GET", f"/state?id={session}", None)


def _call(transport: Transport, method: str, target: str, body: Any) -> Any:
    status, answer = transport.exchange(method, target, body, None)
    if status != 200:
        raise ReplayError(f"{target} answered {status}: {answer[:200].decode(errors='replace')}")
    return json.loads(answer)


def _picture(transport: Transport, session: int) -> np.ndarray:
    """The grid as uint8 [height, width, 3]."""
    uri = _call(transport, "POST", "/render", {"id": session})
    return read_png(base64.b64decode(uri.partition(",")[2]))


class _Greens:
    """Tells green things from grey ones by the picture of the start, taken only if needed.

    `mark` adds `greens` to a state: the cells (column, row) whose letter G means green. A thing
    that was carried elsewhere has the colour by which it was called while it was carried.
    """

    def __init__(self, start: Mapping[str, Any], picture: Any):
        self._at: dict[tuple[int, int], str] = {}
        self._carried: dict[str, bool] = {}
        cells = _ambiguous(start) if "carrying" in start else []
        if cells:
            pixels = picture()
            size = pixels.shape[0] // len(start["grid"])
            self._at = {
                (x, y): kind
                for x, y, kind in cells
                if is_green(pixels[y * size : (y + 1) * size, x * size : (x + 1) * size])
            }

    def mark(self, state: dict[str, Any]) -> None:
        """Adds the list to a state of BabyAI; others are left alone."""
        if "carrying" not in state:
            return
        if state["carrying"]:
            colour, _, kind = state["carrying"].rpartition(" ")
            letter = {"ball": "A", "box": "B", "key": "K"}[kind]
            self._carried[letter] = colour == "green"
        state["greens"] = [
            [x, y]
            for x, y, kind in _ambiguous(state)
            if self._at.get((x, y)) == kind
            or kind in "DL"
            and self._at.get((x, y), "") in ("D", "L")
            or self._carried.get(kind, False)
            and (x, y) not in self._at
        ]


def _ambiguous(state: Mapping[str, Any]) -> list[tuple[int, int, str]]:
    """Column, row and letter of the things that are green or grey."""
    return [
        (x // 2, y, line[x])
        for y, line in enumerate(state["grid"])
        for x in range(0, len(line), 2)
        if line[x] in _THINGS and line[x + 1] == _AMBIGUOUS
    ]


def is_green(tile: np.ndarray) -> bool:
    """Whether anything in a tile is clearly more green than red and blue."""
    red, green, blue = (tile[..., i].astype(int) for i in range(3))
    return bool(np.any(green - np.maximum(red, blue) > 60))


def read_png(data: bytes) -> np.ndarray:
    """Pixels of a PNG as the environments write it: 8-bit RGB, no interlacing, no filter.

    Raises:
      ValueError: it is another kind of PNG, or none.
    """
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("not a PNG")
    width, height, depth, colours, _, _, interlace = struct.unpack(">IIBBBBB", data[16:29])
    if (depth, colours, interlace) != (8, 2, 0):
        raise ValueError(f"PNG with {depth} bits, colour type {colours}: expected 8-bit RGB")
    packed, at = b"", 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 3 * width)
    if rows[:, 0].any():
        raise ValueError("PNG with filtered rows")
    return rows[:, 1:].reshape(height, width, 3)


def chosen_for_replay(files: Sequence[Sequence[Record]], limit: int) -> set[tuple[int, int]]:
    """Which episodes to replay when not all can be.

    About half are all episodes of some tasks that were played at several steps, so that these can
    be compared; the others are spread evenly over the run, one of each group first.

    Args:
      files: for every trajectory file, its rows (`records.row_of`) in order.
      limit: episodes in total.

    Returns:
      (file, row) numbers.
    """
    of_task: dict[str, list[tuple[int, int]]] = {}
    first, others = [], []
    for file, rows in enumerate(files):
        for number, row in enumerate(rows):
            if row["environment"] in REPLAYED and row["number"] is not None:
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
