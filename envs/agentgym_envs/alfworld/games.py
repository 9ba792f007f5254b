"""The games of ALFWorld's download (`json_2.1.1`), read from a folder."""

import json
import pathlib
from typing import Any

from agentgym_envs.alfworld.grammar import read_rules
from agentgym_envs.alfworld.houses import KINDS
from agentgym_envs.alfworld.pddl import read_problem
from agentgym_envs.alfworld.rules import Game, numbered_names
from agentgym_envs.base import manifest
from agentgym_envs.base.environment import SetupError

_ROOT, _FILE = "json_2.1.1", "game.tw-pddl"
# AgentGym's lists of ids, and the part of the download in which the games of each list are.
_MAPPINGS = (
    ("mappings_train.json", "train", manifest.TRAIN),
    ("mappings_test.json", "valid_train", manifest.TEST),
)
_PARTS = (
    ("train", manifest.TRAIN),
    ("valid_seen", manifest.DEV),
    ("valid_unseen", manifest.TEST),
)


def find_games(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the task manifest of a folder such as `~/.cache/alfworld`.

    If the folder also has AgentGym's `mappings_train.json` and `mappings_test.json`, the ids are
    those of AgentGym's server. Otherwise the games of `train`, `valid_seen` and `valid_unseen` are
    numbered in the order of their paths.

    Raises:
      SetupError: The folder has no games, or a mapping is wrong.
    """
    root = folder / _ROOT
    if all((folder / name).is_file() for name, _, _ in _MAPPINGS):
        found = [
            (f"{part}/{entry['task_type']}/{entry['task_id']}", split)
            for name, part, split in _MAPPINGS
            for entry in _read_mapping(folder / name)
        ]
    else:
        found = [
            (path.parent.relative_to(root).as_posix(), split)
            for part, split in _PARTS
            for path in sorted(root.glob(f"{part}/*/*/{_FILE}"))
            if path.parts[-3].partition("-")[0] in KINDS and "Sliced" not in path.parts[-3]
        ]
    for game, _ in found:
        if not (root / game / _FILE).is_file():
            raise SetupError(f"alfworld: the game {root / game / _FILE} of a mapping is missing")
    if not found:
        raise SetupError(
            f"alfworld: no game {root}/train/*/*/{_FILE}. Download ALFWorld's games with "
            "`alfworld-download` and set games= to its folder"
        )
    return [
        {
            "data_idx": i,
            "split": split,
            "task_type": game.split("/")[1].partition("-")[0],
            "game": game,
        }
        for i, (game, split) in enumerate(found)
    ]


def read_game(folder: pathlib.Path, game: str) -> Game:
    """Returns a game of a folder."""
    path = folder / _ROOT / game / _FILE
    data = json.loads(path.read_text(encoding="utf-8"))
    ids, facts, goal = read_problem(data["pddl_problem"])
    return Game(
        kind=game.partition("/")[2],
        facts=tuple(facts),
        names=numbered_names(ids),
        goal=goal,
        grammar=read_rules(data["grammar"]),
    )


def _read_mapping(path: pathlib.Path) -> list[dict[str, str]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return [{key: str(entry[key]) for key in ("task_type", "task_id")} for entry in entries]
    except (ValueError, TypeError, KeyError) as error:
        raise SetupError(f"alfworld: {path} is not a mapping of AgentGym: {error!r}") from None
