"""Environment in which a task needs `depth` correct pulls, and some lamps occur only after three
correct pulls.

The lamp and the levers are those of configs/rl/bandit.py. A correct pull leads to the next lamp, a
wrong pull changes nothing. The first three pulls use the first half of the lamps, later pulls the
other half, so a run with a short turn limit never reaches that half. The reward is 1 at the end of
the chain, 0 before.
"""

import random
from typing import Any

from agentgym_envs.base.environment import StepResult
from agentgym_envs.base.served import ServedEnvironment, standard_environment
from configs.rl.bandit import LAMPS, Bandit

DEPTHS = (1, 2, 3, 4, 5, 6)
MAX_TURNS = 8
NUM_TASKS = 1200
EARLY = LAMPS[: len(LAMPS) // 2]
LATE = LAMPS[len(LAMPS) // 2 :]


def chain(data_idx: int) -> list[str]:
    """Returns the colours of the lamp; their number is the depth of the task."""
    rng = random.Random(f"chain {data_idx}")
    depth = DEPTHS[data_idx % len(DEPTHS)]
    return [rng.choice(EARLY if place < 3 else LATE) for place in range(depth)]


class Chain(Bandit):
    """Environment whose state is a list of lamps and the current position in this list."""

    def reset(self, data_idx: int) -> StepResult:
        self._lamps = chain(data_idx)
        self._place = 0
        return StepResult(f"Machine {data_idx}. {self._shown()}", reward=0, score=0, done=False)

    def step(self, action: str) -> StepResult:
        if action not in self.valid_actions():
            return StepResult(f"No such lever: {action[:20]!r}. {self._shown()}", 0, 0, False)
        if action != self.expert_action():
            return StepResult(f"Nothing comes. {self._shown()}", 0, 0, False)
        self._place += 1
        if self._place == len(self._lamps):
            return StepResult("It pays.", reward=1, score=1, done=True)
        return StepResult(f"It clicks. {self._shown()}", 0, 0, False)

    def _lamp(self) -> str:
        return self._lamps[min(self._place, len(self._lamps) - 1)]

    def snapshot(self) -> Any:
        return [self._lamps, self._place]

    def restore(self, snapshot: Any) -> None:
        self._lamps, self._place = list(snapshot[0]), snapshot[1]


def make_served_environment() -> ServedEnvironment:
    """Returns the description of the environment; of each depth every sixth machine is held out."""
    splits = ["train" if i // len(DEPTHS) % 6 else "test" for i in range(NUM_TASKS)]
    tasks = [
        dict(data_idx=i, machine=i, split=split, depth=len(chain(i)), lamps=" ".join(chain(i)))
        for i, split in enumerate(splits)
    ]
    return standard_environment(
        Chain,
        tasks,
        name="chain",
        version="1",
        instructions="Under each colour of the lamp one lever pays. Reply with the colour and the lever.",
        max_turns=MAX_TURNS,
        refusal="No such lever",
    )
