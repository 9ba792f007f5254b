"""Detection of leakage: evaluated tasks that occur in the training data of a run."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym_jax.data.conversations import Conversation, read_conversations
from agentgym_jax.data.preferences import opening, read_preferences
from agentgym_jax.data.tasks import canonical_item_id
from agentgym_jax.evaluation.scores import EpisodeScore, summarise_group
from agentgym_jax.evaluation.task_identity import Items
from agentgym_jax.trajectory import Trajectory

_MAX_NAMED = 20  # maximum number of items named in a report
# In a record, item id and first observation are near the start of the line, before the token ids.
# The token ids are not parsed.
_ITEM = re.compile(r'"item_id": ?"((?:[^"\\]|\\.)*)"')
_OBSERVATION = re.compile(r'"first_observation": ?("(?:[^"\\]|\\.)*")')
_FIRST_TEXT = re.compile(r'"from": ?"human", ?"value": ?("(?:[^"\\]|\\.)*")')
# Sections of a config that name data files.
_SECTIONS = ("sft", "dpo", "agentevol")


@dataclasses.dataclass
class TrainingData:
    """Data used to train a policy.

    Attributes:
      source: Folder of the run.
      read: Files and folders that were read: the records of the run and the data files named in its
        config. The same files of earlier runs, whose weights the run started from, are included.
      unread: Sources that could not be read, each with the reason.
      episodes: Number of records.
      items: Item ids of the tasks in the records.
      observations: First observations of the episodes, if the records contain them.
    """

    source: str
    read: list[str] = dataclasses.field(default_factory=list)
    unread: list[str] = dataclasses.field(default_factory=list)
    episodes: int = 0
    items: set[str] = dataclasses.field(default_factory=set)
    observations: set[str] = dataclasses.field(default_factory=set)

    def add(self, item_id: str, observation: str | None) -> None:
        """Adds a record to the counts."""
        self.episodes += 1
        self.items.add(canonical_item_id(item_id))
        if observation is not None:
            self.observations.add(observation)


def read_training_data(folder: pathlib.Path) -> TrainingData:
    """Reads the training data of a run and of the earlier runs whose weights it started from.

    Evaluation episodes of the runs are not training data. Relative paths in a config are resolved
    in the current directory, as in training. The training data of a Hugging Face model are unknown.

    Args:
      folder: Folder of the run.
    """
    found = TrainingData(str(folder))
    runs = [folder]
    for run in runs:  # the loop appends earlier runs to the list
        _read_records(run, found)
        config = _read_config(run, found)
        for name in _SECTIONS:
            options = config[name] if isinstance(config.get(name), dict) else {}
            for path in options.get("files", ()):
                _read_data(path, _conversations, found)
            for path in options.get("preferences", ()):
                _read_data(path, _chosen_sides, found)
        # The model source can also be `random`, another path or a hub id.
        before = pathlib.Path(config.get("model", {}).get("source", "")).expanduser()
        if (before / "checkpoints").is_dir() and not any(before.samefile(r) for r in runs):
            runs.append(before)
    return found


def _read_records(run: pathlib.Path, found: TrainingData) -> None:
    """Reads the items of training episodes and recorded demonstrations without parsing their
    tokens.
    """
    paths = sorted((run / "trajectories").glob("*.jsonl"))
    paths = [path for path in paths if not path.name.startswith("eval_")]
    paths += sorted(run.glob("data/**/*.jsonl"))
    if paths:
        found.read.append(str(run))
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                item = _ITEM.search(line)
                if item is not None:
                    seen = _OBSERVATION.search(line) or _FIRST_TEXT.search(line)
                    found.add(item[1], json.loads(seen[1]) if seen is not None else None)


def _read_config(run: pathlib.Path, found: TrainingData) -> Mapping[str, Any]:
    path = run / "config.json"
    if not path.exists():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        found.unread.append(f"{path} ({error})")
        return {}
    return config if isinstance(config, dict) else {}


def _read_data(
    path: str, read: Callable[[str], Iterable[Conversation]], found: TrainingData
) -> None:
    """Reads a data file or folder that a config names, and adds its conversations."""
    try:
        conversations = read(path)
    except (OSError, ValueError) as error:
        found.unread.append(f"{path} ({error})")
        return
    found.read.append(path)
    for conversation in conversations:
        prompt = opening(conversation.messages)
        found.add(conversation.item_id, prompt[-1].content if prompt else None)


def _conversations(path: str) -> Iterable[Conversation]:
    return read_conversations(path, bad="skip")


def _chosen_sides(path: str) -> Iterable[Conversation]:
    pairs = read_preferences(path, bad="skip")
    return [pair.chosen for pair in pairs]  # the rejected conversation has the same task


def find_leakage(
    items: Items,
    trajectories: Sequence[Trajectory],
    episodes: Sequence[EpisodeScore],
    training: TrainingData | None,
) -> dict[str, Any]:
    """Returns a report of the evaluated tasks that were or may have been used in training.

    Args:
      items: Result of `task_identity.item_facts`.
      trajectories: Trajectories of the evaluation.
      episodes: Scores of the evaluation.
      training: Training data of the policy; None if they are unknown.

    Returns:
      Each of the following entries has the number of items and the first of them: `unlisted` (items
      that are not in the manifest), `train_split` (items of the manifest's training split),
      `trained` (items in the training records) and `same_observation` (other items whose first
      observation occurs in training, so that the tasks are equal or similar). Also `source`, `read`
      and `unread`, from TrainingData, and `success_without`, the success without leaked items.
      `success_without` is None if no item has leaked or if all have. If the training records are known, they decide
      which items have leaked, because a run may use another split than the manifest. Without
      records, the items of the training split are treated as leaked.
    """
    seen = TrainingData("") if training is None else training
    train_split = {i for i, row in items.items() if row["facts"].get("split") == "train"}
    trained = {i for i in items if i in seen.items}
    similar = {
        t.item_id
        for t in trajectories
        if t.first_observation and t.first_observation in seen.observations
    }
    leaked = train_split if training is None else trained | similar
    clean = [e for e in episodes if e.item_id not in leaked]
    summary = summarise_group(clean)
    return {
        "source": None if training is None else training.source,
        "read": list(seen.read),
        "unread": list(seen.unread),
        "training_episodes": None if training is None else training.episodes,
        "unlisted": _named({i for i, row in items.items() if row["digest"] is None}),
        "train_split": _named(train_split),
        "trained": _named(trained),
        "same_observation": _named(similar - trained),
        "tasks_without": summary["tasks"],
        "success_without": summary["success"] if leaked else None,
    }


def _named(items: set[str]) -> dict[str, Any]:
    return {"count": len(items), "items": sorted(items)[:_MAX_NAMED]}


def describe_leakage(leakage: Mapping[str, Any]) -> list[str]:
    """Describes a result of `find_leakage` in sentences; the list is empty without leakage."""
    texts = {
        "train_split": "are of the training split of the manifest",
        "trained": f"were trained on ({leakage['source']})",
        "same_observation": "begin with a text that training has seen under another id",
    }
    found = [
        f"{leakage[key]['count']} evaluated tasks {text}, such as {leakage[key]['items'][0]}"
        for key, text in texts.items()
        if leakage[key]["count"]
    ]
    if found and leakage["success_without"] is not None:
        found.append(
            f"success without leaked items: {100 * leakage['success_without']:.1f} % of "
            f"{leakage['tasks_without']} tasks"
        )
    return found + [
        f"training data that could not be read may hold more: {path}" for path in leakage["unread"]
    ]
