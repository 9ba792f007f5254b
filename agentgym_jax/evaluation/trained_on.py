"""What a run was trained on, as far as its files tell."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentgym_jax.data.conversations import Conversation, read_conversations
from agentgym_jax.data.preferences import opening, read_preferences
from agentgym_jax.data.tasks import canonical_item_id

# Both stand near the start of a line, long before the token ids, which need not be parsed.
_ITEM = re.compile(r'"item_id": ?"((?:[^"\\]|\\.)*)"')
_OBSERVATION = re.compile(r'"first_observation": ?("(?:[^"\\]|\\.)*")')
_FIRST_TEXT = re.compile(r'"from": ?"human", ?"value": ?("(?:[^"\\]|\\.)*")')
# Sections of a config that name data files.
_SECTIONS = ("sft", "dpo", "agentevol")


@dataclasses.dataclass(frozen=True)
class TrainedOn:
    """What a policy has seen in training.

    Attributes:
      source: the run folder.
      read: files and folders that were read: its records, data files that its config names, and
        the same of the runs whose weights it started from.
      unread: of these what cannot be read, each with the reason.
      episodes: records.
      items: item ids.
      observations: first observations, where the records have them.
    """

    source: str
    read: tuple[str, ...]
    unread: tuple[str, ...]
    episodes: int
    items: frozenset[str]
    observations: frozenset[str]


def read_trained_on(folder: pathlib.Path) -> TrainedOn:
    """Reads a run and the runs it was continued from.

    Their evaluation episodes are not training. Relative paths of a config are looked for in the
    present directory, as training did. What a model of Hugging Face was trained on is unknown.

    Args:
      folder: of the run.
    """
    found = _Found()
    runs = [folder]
    for run in runs:  # grows while it is read
        found.records(run)
        config = _config(run, found)
        for name in _SECTIONS:
            options = config[name] if name in config and isinstance(config[name], dict) else {}
            for path in _paths(options, "files"):
                found.data(path, _conversations)
            for path in _paths(options, "preferences"):
                found.data(path, _preferred)
        before = pathlib.Path(_start(config)).expanduser()
        if (before / "checkpoints").is_dir() and not any(before.samefile(r) for r in runs):
            runs.append(before)
    return TrainedOn(
        source=str(folder),
        read=tuple(found.read),
        unread=tuple(found.unread),
        episodes=found.episodes,
        items=frozenset(found.items),
        observations=frozenset(found.observations),
    )


class _Found:
    """Grows while files are read."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.unread: list[str] = []
        self.episodes = 0
        self.items: set[str] = set()
        self.observations: set[str] = set()

    def records(self, run: pathlib.Path) -> None:
        """Training episodes and recorded demonstrations of a run, without parsing their tokens."""
        paths = _records_of(run)
        if paths:
            self.read.append(str(run))
        for path in paths:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    item = _ITEM.search(line)
                    if item is not None:
                        seen = _OBSERVATION.search(line) or _FIRST_TEXT.search(line)
                        self._add(item[1], json.loads(seen[1]) if seen is not None else None)

    def data(self, path: str, read: Callable[[str], Iterable[Conversation]]) -> None:
        """A file, or a folder, that a config names."""
        try:
            conversations = read(path)
        except (OSError, ValueError) as error:
            self.unread.append(f"{path} ({error})")
            return
        self.read.append(path)
        for conversation in conversations:
            prompt = opening(conversation.messages)
            self._add(conversation.item_id, prompt[-1].content if prompt else None)

    def _add(self, item_id: str, observation: str | None) -> None:
        self.episodes += 1
        self.items.add(canonical_item_id(item_id))
        if observation is not None:
            self.observations.add(observation)


def _records_of(run: pathlib.Path) -> list[pathlib.Path]:
    paths = sorted((run / "trajectories").glob("*.jsonl"))
    training = [path for path in paths if not path.name.startswith("eval_")]
    return training + sorted(run.glob("data/**/*.jsonl"))


def _config(run: pathlib.Path, found: _Found) -> Mapping[str, Any]:
    path = run / "config.json"
    if not path.exists():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        found.unread.append(f"{path} ({error})")
        return {}
    return config if isinstance(config, dict) else {}


def _paths(options: Mapping[str, Any], key: str) -> list[str]:
    return list(options[key]) if key in options else []


def _start(config: Mapping[str, Any]) -> str:
    """Where the weights came from at the start of a run: `random`, a path, a hub id."""
    model = config["model"] if "model" in config else {}
    return model["source"] if "source" in model else ""


def _conversations(path: str) -> Iterable[Conversation]:
    return read_conversations(path, bad="skip").conversations


def _preferred(path: str) -> Iterable[Conversation]:
    pairs, _ = read_preferences(path, bad="skip")
    return [pair.chosen for pair in pairs]  # the other one is about the same task
