"""Level and seed of each task index, and the split into train and test.

Task `data_idx` is level `LEVELS[data_idx % 40]` with seed `data_idx // 40`. This is AgentGym's
mapping (arXiv:2406.04151), so item ids such as `babyai_57` mean the same task in both projects.
"""

import dataclasses
from collections.abc import Iterator

# Pairs of level (without the `BabyAI-` prefix) and family, in AgentGym's order. GoTo, Pickup,
# ActionObjDoor, FindObjS7, OneRoomS20 and SynthLoc are the sub-tasks of arXiv:2509.08755.
_LEVELS_AND_FAMILIES = (
    ("GoToRedBallGrey", "GoTo"),
    ("GoToRedBall", "GoTo"),
    ("GoToRedBallNoDists", "GoTo"),
    ("GoToObjS6", "GoTo"),
    ("GoToLocalS8N7", "GoTo"),
    ("GoToObjMazeS7", "GoTo"),
    ("GoToImpUnlock", "GoTo"),
    ("GoToSeqS5R2", "GoTo"),
    ("GoToRedBlueBall", "GoTo"),
    ("GoToDoor", "GoTo"),
    ("GoToObjDoor", "GoTo"),
    ("Open", "Open"),
    ("OpenRedDoor", "Open"),
    ("OpenDoorLoc", "Open"),
    ("OpenRedBlueDoorsDebug", "Open"),
    ("OpenDoorsOrderN4Debug", "Open"),
    ("Pickup", "Pickup"),
    ("UnblockPickup", "Pickup"),
    ("PickupLoc", "Pickup"),
    ("PickupDistDebug", "Pickup"),
    ("PickupAbove", "Pickup"),
    ("PutNextLocalS6N4", "PutNext"),
    ("PutNextS7N4Carrying", "PutNext"),
    ("Unlock", "Unlock"),
    ("UnlockLocalDist", "Unlock"),
    ("KeyInBox", "Unlock"),
    ("UnlockPickupDist", "Unlock"),
    ("BlockedUnlockPickup", "Unlock"),
    ("UnlockToUnlock", "Unlock"),
    ("ActionObjDoor", "ActionObjDoor"),
    ("FindObjS7", "FindObjS7"),
    ("KeyCorridorS6R3", "KeyCorridor"),
    ("OneRoomS20", "OneRoomS20"),
    ("MoveTwoAcrossS8N9", "PutNext"),
    ("SynthS5R2", "Synth"),
    ("SynthLoc", "SynthLoc"),
    ("SynthSeq", "Synth"),
    ("MiniBossLevel", "Boss"),
    ("BossLevel", "Boss"),
    ("BossLevelNoUnlock", "Boss"),
)
LEVELS = tuple(f"BabyAI-{name}-v0" for name, _ in _LEVELS_AND_FAMILIES)
FAMILIES = tuple(family for _, family in _LEVELS_AND_FAMILIES)

# minigrid has no largest seed, but a server needs a bound; 2^20 seeds per level are enough.
SEEDS_PER_LEVEL = 2**20
NUM_TASKS = len(LEVELS) * SEEDS_PER_LEVEL
# Number of seeds per level that the manifest lists.
LISTED_SEEDS = 100
# Nine of ten seeds are for training, like 810 of the 900 ids that AgentGym published.
TEST_SEED_PERIOD = 10


@dataclasses.dataclass(frozen=True)
class Task:
    """The level and seed that a task index selects.

    Attributes:
      level: Level id in minigrid, such as `BabyAI-GoToObjS6-v0`.
      family: Sub-task to which reports assign the level.
      split: `train` or `test`; every tenth seed of each level (9, 19, ...) is in `test`.
    """

    data_idx: int
    level: str
    family: str
    seed: int
    split: str


def task(data_idx: int) -> Task:
    """Returns the task of an index >= 0; there is no upper bound."""
    if data_idx < 0:
        raise ValueError(f"BabyAI: data_idx is {data_idx}; it must be 0 or more")
    seed, level = divmod(data_idx, len(LEVELS))
    is_test = seed % TEST_SEED_PERIOD == TEST_SEED_PERIOD - 1
    return Task(data_idx, LEVELS[level], FAMILIES[level], seed, "test" if is_test else "train")


def data_idx(level: str, seed: int) -> int:
    """Returns the task index of a level and a seed; `BabyAI-` and `-v0` in `level` are optional."""
    full = level if level.startswith("BabyAI-") else f"BabyAI-{level}-v0"
    if full not in LEVELS:
        raise ValueError(f"BabyAI: no level {level!r} among the {len(LEVELS)}: {', '.join(LEVELS)}")
    return seed * len(LEVELS) + LEVELS.index(full)


def listed_tasks() -> Iterator[Task]:
    """Yields the tasks that the manifest lists: seeds 0 .. LISTED_SEEDS - 1 of every level."""
    return (task(idx) for idx in range(len(LEVELS) * LISTED_SEEDS))
