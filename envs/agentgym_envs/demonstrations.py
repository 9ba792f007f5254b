"""Episodes of scripted agents, written as AgentGym's trajectory records, one JSON line each.

    {"item_id": "babyai_17",
     "conversations": [{"from": "human", "value": first observation, "loss": null},
                       {"from": "gpt", "value": "Action:\\nturn left", "loss": true,
                        "chosen_by": "expert"}, ...],
     "reward": sum of the rewards, "success": 0 or 1, "agent": "expert"}

A record ends with the last action, like AgentGym's records. With the same options it depends only
on the seed and the task, not on the other tasks of the call.
"""

import dataclasses
import json
import logging
import os
import pathlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentgym_envs.base.environment import Environment, EnvironmentFault
from agentgym_envs.base.protocol import is_solved
from agentgym_envs.base.served import ServedEnvironment
from agentgym_envs.base.user_code import describe, ending, loading, play, text_of, texts_of

_LOGGER = logging.getLogger(__name__)
_PROGRESS_S = 15.0  # minimum seconds between two lines of progress

EXPERT = "expert"
RANDOM = "random"


@dataclasses.dataclass(frozen=True)
class Choice:
    """Next action of a scripted agent.

    Attributes:
      chosen_by: EXPERT or RANDOM.
      is_taught: True if a model is trained to imitate the action.
    """

    action: str
    chosen_by: str
    is_taught: bool


AGENTS = (EXPERT, RANDOM, "mixed")


def choose(
    environment: Environment, agent: str, rng: random.Random, epsilon: float, seen: Sequence[str]
) -> Choice:
    """Chooses the next action: the expert's for `expert` and `mixed`, a random valid one for
    `random`.

    With probability `epsilon`, `random` and `mixed` instead draw an action from `seen`, the actions
    that have been valid at any time in the episode. The environment may reject such an action now.
    A model is not trained to imitate it, but sees how the agent recovers.
    """
    if agent != EXPERT and rng.random() < epsilon:
        return Choice(rng.choice(seen), RANDOM, False)
    if agent == RANDOM:
        return Choice(rng.choice(texts_of(environment.valid_actions)), RANDOM, True)
    return Choice(text_of(environment.expert_action), EXPERT, True)


def plain_text(action: str) -> str:
    """Returns the model's target text: only the action."""
    return f"Action:\n{action}"


def thoughtful_text(action: str) -> str:
    """Returns the action, preceded by a thought that adds no information."""
    return f"Thought:\nFrom what I see now, the best next move is: {action}.\n\nAction:\n{action}"


def thoughtful_raw_text(action: str) -> str:
    """Returns the action, preceded by a thought unless the action already has one."""
    if "<think>" in action:
        return action
    return f"From what I see now, the best next move is this.\n{action}"


# For each action format: functions from an action to the text of a turn, without and with a
# thought.
TEXTS: Mapping[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
    "react": (plain_text, thoughtful_text),
    "raw": (str, thoughtful_raw_text),
    "tools": (str, thoughtful_raw_text),  # for agents that read the tools as text
}


def record_episode(
    environment: Environment,
    name: str,
    data_idx: int,
    *,
    agent: str,
    epsilon: float,
    seed: int,
    max_turns: int,
    to_text: Callable[[str], str],
    success_score: float,
) -> dict[str, Any]:
    """Runs one episode of a task in an environment, which is reset first.

    `name` is the prefix of the item id. The seed is the same for all tasks of a call. `to_text`
    converts an action to the text of the model's turn. `max_turns` limits the actions.
    """
    item_id = f"{name}_{data_idx}"
    rng = random.Random(f"{seed}/{item_id}")
    with ending():
        result = play(environment.reset, data_idx)
    conversations: list[dict[str, Any]] = []
    seen: dict[str, None] = {}  # dictionary used as an ordered set
    reward = 0.0
    for _ in range(max_turns):
        conversations.append({"from": "human", "value": result.text, "loss": None})
        with ending():
            if agent != EXPERT:
                seen.update(dict.fromkeys(texts_of(environment.valid_actions)))
            choice = choose(environment, agent, rng, epsilon, list(seen))
        turn = {"from": "gpt", "value": to_text(choice.action), "loss": choice.is_taught}
        conversations.append({**turn, "chosen_by": choice.chosen_by})
        with ending():
            result = play(environment.step, choice.action)
        reward += result.reward
        if result.done:
            break
    return {
        "item_id": item_id,
        "conversations": conversations,
        "reward": reward,
        "success": int(result.done and is_solved(result.score, success_score)),
        "agent": agent,
    }


def record(
    served: ServedEnvironment, indices: Sequence[int], **options: Any
) -> Iterator[dict[str, Any]]:
    """Yields the records of the tasks in order; `options` are the keywords of `record_episode`.

    Raises:
      ValueError: An index has no task, an agent has no next action, or the environment's code fails.
      SetupError: No environment can be made.
    """
    with loading(f"no environment of {served.spec.name} can be made"):
        environment = served.factory()
    try:
        for data_idx in indices:
            if not 0 <= data_idx < served.spec.num_tasks:
                raise ValueError(
                    f"{served.spec.name} has tasks 0 .. {served.spec.num_tasks - 1}; {data_idx} was "
                    "asked for"
                )
            try:
                yield record_episode(
                    environment,
                    served.spec.name,
                    data_idx,
                    success_score=served.spec.success_score,
                    **options,
                )
            except EnvironmentFault as fault:
                raise ValueError(f"{served.spec.name}_{data_idx}: {fault.message}") from fault
            except NotImplementedError as error:
                raise ValueError(
                    f"{served.spec.name}: {error}, which the agent {options['agent']!r} needs. Add "
                    "the method, or choose another agent."
                ) from error
            except Exception as error:  # an environment can raise any error
                _LOGGER.debug("task %d failed", data_idx, exc_info=True)
                raise ValueError(f"{served.spec.name}_{data_idx}: {describe(error)}") from error
    finally:
        environment.close()


def write(records: Iterator[Mapping[str, Any]], total: int, out: pathlib.Path) -> None:
    """Writes records as JSON lines. The file appears only when it is complete.

    Until then, OUT.partial has the lines of the finished episodes.
    """
    partial = out.with_name(out.name + ".partial")
    solved, shown = 0, time.monotonic()
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("w", encoding="utf-8", buffering=1) as file:
            for done, episode in enumerate(records, 1):
                file.write(json.dumps(episode, ensure_ascii=False) + "\n")
                solved += episode["success"]
                if done == total or time.monotonic() - shown >= _PROGRESS_S:
                    shown = time.monotonic()
                    _LOGGER.info("%d of %d episodes, %d solved", done, total, solved)
        os.replace(partial, out)
    except OSError as error:  # on a full disk the error lacks the path
        raise OSError(error.errno, error.strerror, str(out)) from error
    finally:
        partial.unlink(missing_ok=True)


def read_indices(text: str, name: str) -> list[int]:
    """Parses the task indices of a list: JSON (item ids, numbers or `{"item_id": ...}`) or one id
    per line.

    Raises:
      ValueError: An entry is not an id of this environment, or there is none.
    """
    stripped = text.strip()
    try:
        entries = json.loads(stripped) if stripped.startswith("[") else stripped.split()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the list of tasks is no JSON: {error}") from error
    if not entries:
        raise ValueError(f"the list of tasks is empty; expected ids such as {name}_17")
    return [_index(entry, name) for entry in entries]


def _index(entry: Any, name: str) -> int:
    item = entry["item_id"] if isinstance(entry, dict) and "item_id" in entry else entry
    prefix, _, number = str(item).rpartition("_")
    if prefix not in ("", name) or not (number.isascii() and number.isdigit()):
        raise ValueError(
            f"{json.dumps(entry)} is not a task of {name}; expected {name}_17 or the number alone"
        )
    return int(number)
