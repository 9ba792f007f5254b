"""Detection of leakage: evaluated tasks that occur in the training data of a run."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.data.conversations import read_conversations
from agentgym_jax.data.preferences import opening, read_preferences
from agentgym_jax.data.tasks import canonical_item_id
from agentgym_jax.episodes.trajectory import Trajectory
from agentgym_jax.evaluation.scores import EpisodeScore, summarise_group
from agentgym_jax.evaluation.task_identity import Items
from agentgym_jax.runs import bucket
from agentgym_jax.runs.run_folder import RunFolder

_MAX_NAMED = 20  # maximum number of items named in a report
# A record has its item id and first observation before the token ids, which are not parsed.
_ITEM = re.compile(r'"item_id": ?"((?:[^"\\]|\\.)*)"')
_OBSERVATION = re.compile(r'"first_observation": ?("(?:[^"\\]|\\.)*")')
_FIRST_TEXT = re.compile(r'"from": ?"human", ?"value": ?("(?:[^"\\]|\\.)*")')


@dataclasses.dataclass
class TrainingData:
    """Data used to train a policy and its initial weights."""

    source: str  # folder of the run
    read: list[str] = dataclasses.field(default_factory=list)  # files and folders
    unread: list[str] = dataclasses.field(default_factory=list)  # paths with the reasons
    episodes: int = 0  # number of records
    items: set[str] = dataclasses.field(default_factory=set)  # item ids of the records
    observations: set[str] = dataclasses.field(default_factory=set)  # first observations

    def add(self, item_id: str, observation: str | None) -> None:
        """Adds a record."""
        self.episodes += 1
        self.items.add(canonical_item_id(item_id))
        if observation is not None:
            self.observations.add(observation)


def read_training_data(folder: pathlib.Path) -> TrainingData:
    """Reads the training data of a run folder and of the runs that trained its initial weights.

    Relative paths in a config are resolved in the current directory, as in training.
    """
    found = TrainingData(str(folder))
    runs = [folder]
    for run in runs:  # the loop appends earlier runs to the list
        _read_records(run, found)
        config: Mapping[str, Any] = {}
        try:
            if RunFolder(run).config_path.exists():
                config = RunFolder(run).config()
        except ValueError as error:
            found.unread.append(str(error))
        for name in ("sft", "dpo", "agentevol"):
            section = config.get(name) or {}
            if section.get("steps") == 0:  # a run without a warm start
                continue
            for key in ("files", "preferences"):
                for path in section.get(key, ()):
                    _read_data(path, key, found)
        # The model source can also be `random`, another path or a hub id.
        source = config.get("model", {}).get("source", "")
        if bucket.is_url(source):
            found.unread.append(f"{source} (in a bucket)")
        before = pathlib.Path(source).expanduser()
        if (before / "checkpoints").is_dir() and not any(before.samefile(r) for r in runs):
            runs.append(before)
    return found


def _read_records(run: pathlib.Path, found: TrainingData) -> None:
    """Reads the items of training episodes and recorded demonstrations without parsing tokens."""
    paths = sorted((run / "trajectories").glob("*.jsonl"))
    paths = [path for path in paths if not path.name.startswith("eval_")]
    paths += sorted(run.glob("data/**/*.jsonl"))
    if paths:
        found.read.append(str(run))
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                item = _ITEM.search(line)
                if item is not None:
                    seen = _OBSERVATION.search(line) or _FIRST_TEXT.search(line)
                    found.add(item[1], json.loads(seen[1]) if seen is not None else None)


def _read_data(path: str, key: str, found: TrainingData) -> None:
    """Reads a data file or folder that a config section names under `key`."""
    try:
        if key == "files":
            conversations = read_conversations(path, bad="skip")
        else:
            # the rejected conversation of a pair has the same task
            conversations = [pair.chosen for pair in read_preferences(path, bad="skip")]
    except (OSError, ValueError) as error:
        found.unread.append(f"{path} ({error})")
        return
    found.read.append(path)
    for conversation in conversations:
        prompt = opening(conversation.messages)
        found.add(conversation.item_id, prompt[-1].content if prompt else None)


def find_leakage(
    items: Items,
    trajectories: Sequence[Trajectory],
    episodes: Sequence[EpisodeScore],
    training: TrainingData | None,
) -> dict[str, Any]:
    """Returns a report of the evaluated tasks that were or may have been used in training.

    If the training data are known, they decide which items have leaked, because a run may use
    another split than the manifest. Otherwise the manifest's training split counts as leaked.

    Returns:
      Number of items and the first of them under each of `unlisted` (items outside the manifest),
      `train_split` (items of the manifest's training split), `trained` (items in the training
      records) and `same_observation` (other items whose first observation occurs in training).
      `success_without` is the success without leaked items; None if no item has leaked or all have.
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
    """Returns the findings in a result of `find_leakage` as texts.

    The manifest's training split is a finding only if the training data are unknown.
    """
    texts = {
        "trained": f"were trained on ({leakage['source']})",
        "same_observation": "begin with a text that training has seen under another id",
    }
    if leakage["source"] is None:
        texts = {
            "train_split": "are of the manifest's training split; the training of this agent is unknown"
        } | texts
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
