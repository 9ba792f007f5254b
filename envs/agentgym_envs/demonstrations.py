"""Episodes of scripted players, written as AgentGym's trajectory records, one JSON line each.

    {"item_id": "babyai_17",
     "conversations": [{"from": "human", "value": first observation, "loss": null},
                       {"from": "gpt", "value": "Action:\\nturn left", "loss": true,
                        "chosen_by": "expert"}, ...],
     "reward": sum of the rewards, "success": 0 or 1, "player": "expert"}

A record ends with the last action, as AgentGym's do. It depends on the seed and on the task
alone, not on the other tasks of the call.
"""

import dataclasses
import json
import logging
import os
import pathlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.base.environment import Environment, EnvironmentFault
from agentgym_envs.base.kind import EnvironmentKind

_LOGGER = logging.getLogger(__name__)
_PROGRESS_EVERY = 100  # episodes

EXPERT = "expert"
RANDOM = "random"


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a player does next.

    Attributes:
      action: sent to the environment.
      chosen_by: EXPERT or RANDOM.
      is_taught: whether a model is to imitate it.
    """

    action: str
    chosen_by: str
    is_taught: bool


Player = Callable[[Environment, random.Random, float, Sequence[str]], Choice]


def _detour(rng: random.Random, epsilon: float, seen: Sequence[str]) -> Choice | None:
    """Now and then something else than the player wants, so that it has to go on from there.

    It was valid at some time in this episode, so that also the environment's refusals are seen.
    It is shown but not taught.
    """
    return Choice(rng.choice(seen), RANDOM, False) if rng.random() < epsilon else None


def _play_expert(
    environment: Environment, rng: random.Random, epsilon: float, seen: Sequence[str]
) -> Choice:
    """What the expert does; epsilon is not used."""
    return Choice(environment.expert_action(), EXPERT, True)


def _play_random(
    environment: Environment, rng: random.Random, epsilon: float, seen: Sequence[str]
) -> Choice:
    """Any valid action, with detours."""
    detour = _detour(rng, epsilon, seen)
    return detour or Choice(rng.choice(environment.valid_actions()), RANDOM, True)


def _play_mixed(
    environment: Environment, rng: random.Random, epsilon: float, seen: Sequence[str]
) -> Choice:
    """The expert, with detours."""
    detour = _detour(rng, epsilon, seen)
    return detour or _play_expert(environment, rng, epsilon, seen)


# Player -> (environment, generator, epsilon, actions valid so far) -> choice.
PLAYERS: Mapping[str, Player] = {
    "expert": _play_expert,
    "random": _play_random,
    "mixed": _play_mixed,
}


def plain_text(action: str) -> str:
    """What the model is to write: the action alone."""
    return f"Action:\n{action}"


def thoughtful_text(action: str) -> str:
    """The same after a thought, which says no more than the action does."""
    return f"Thought:\nFrom what I see now, the best next move is: {action}.\n\nAction:\n{action}"


def raw_text(action: str) -> str:
    """The action as it is, of an environment that reads the whole text."""
    return action


def thoughtful_raw_text(action: str) -> str:
    """The same after a thought; an action that brings one of its own stays as it is."""
    if "<think>" in action:
        return action
    return f"From what I see now, the best next move is this.\n{action}"


# Format of actions -> text of a turn from its action, without and with a thought.
TEXTS: Mapping[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
    "react": (plain_text, thoughtful_text),
    "raw": (raw_text, thoughtful_raw_text),
}


def record_episode(
    environment: Environment,
    name: str,
    data_idx: int,
    *,
    player: str,
    epsilon: float,
    seed: int,
    max_turns: int,
    to_text: Callable[[str], str],
    success_score: float,
) -> dict[str, Any]:
    """Plays one task.

    Args:
      environment: where to play; it is reset.
      name: of the environment, for the item id.
      data_idx: index of the task.
      player: a key of PLAYERS.
      epsilon: of the players `random` and `mixed`, probability per turn of a detour.
      seed: of the random choices; the same for all tasks of a call.
      max_turns: actions after which the episode is cut.
      to_text: action -> text of the model's turn.
      success_score: least score of a solved task.
    """
    item_id = f"{name}_{data_idx}"
    rng = random.Random(f"{seed}/{item_id}")
    result = environment.reset(data_idx)
    conversations: list[dict[str, Any]] = []
    seen: dict[str, None] = {}  # an ordered set
    reward = 0.0
    for _ in range(max_turns):
        conversations.append({"from": "human", "value": result.observation, "loss": None})
        seen.update(dict.fromkeys(environment.valid_actions()))
        choice = PLAYERS[player](environment, rng, epsilon, list(seen))
        turn = {"from": "gpt", "value": to_text(choice.action), "loss": choice.is_taught}
        conversations.append({**turn, "chosen_by": choice.chosen_by})
        result = environment.step(choice.action)
        reward += result.reward
        if result.done:
            break
    return {
        "item_id": item_id,
        "conversations": conversations,
        "reward": reward,
        "success": int(result.done and result.score >= success_score),
        "player": player,
    }


def record(
    kind: EnvironmentKind, indices: Sequence[int], **options: Any
) -> Iterator[dict[str, Any]]:
    """Records of the tasks in order; `options` are the keywords of `record_episode`.

    Raises:
      ValueError: an index is not a task, or a player does not know how to go on.
    """
    environment = kind.factory()
    try:
        for data_idx in indices:
            if not 0 <= data_idx < kind.spec.num_tasks:
                raise ValueError(
                    f"{kind.spec.name} has tasks 0 .. {kind.spec.num_tasks - 1}; {data_idx} was "
                    "asked for"
                )
            try:
                yield record_episode(
                    environment,
                    kind.spec.name,
                    data_idx,
                    success_score=kind.spec.success_score,
                    **options,
                )
            except EnvironmentFault as fault:
                raise ValueError(f"{kind.spec.name}_{data_idx}: {fault.message}") from fault
    finally:
        environment.close()


def write(records: Iterator[Mapping[str, Any]], total: int, out: pathlib.Path) -> None:
    """Writes records as JSON lines; the file appears whole or not at all."""
    partial = out.with_name(out.name + ".partial")
    solved = 0
    with partial.open("w", encoding="utf-8") as file:
        for done, episode in enumerate(records, 1):
            file.write(json.dumps(episode, ensure_ascii=False) + "\n")
            solved += episode["success"]
            if done % _PROGRESS_EVERY == 0 or done == total:
                _LOGGER.info("%d of %d episodes, %d solved", done, total, solved)
    os.replace(partial, out)


def read_indices(text: str, name: str) -> list[int]:
    """Task indices of a list: JSON (item ids, numbers or `{"item_id": ...}`) or one id a line.

    Raises:
      ValueError: an entry is not an id of this environment.
    """
    stripped = text.strip()
    entries = json.loads(stripped) if stripped.startswith("[") else stripped.split()
    return [_index(entry, name) for entry in entries]


def _index(entry: Any, name: str) -> int:
    item = entry["item_id"] if isinstance(entry, dict) and "item_id" in entry else entry
    prefix, _, number = str(item).rpartition("_")
    if prefix not in ("", name) or not (number.isascii() and number.isdigit()):
        raise ValueError(
            f"{json.dumps(entry)} is not a task of {name}; expected {name}_17 or the number alone"
        )
    return int(number)
