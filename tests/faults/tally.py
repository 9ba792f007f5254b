"""An environment that remembers every action: one taken twice, or left out, shows in all that follows."""

import hashlib

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.kind import standard_kind

TURNS = 3
TASKS = [{"data_idx": i, "split": "train"} for i in range(64)]


class Tally(Environment):
    """Any text is an action; the last observation decides whether it was a good game."""

    def reset(self, data_idx):
        self.actions = [f"task {data_idx}"]
        return StepResult(f"task {data_idx}", 0, 0, False)

    def step(self, action):
        self.actions.append(action)
        seal = hashlib.sha256("\n".join(self.actions).encode()).hexdigest()
        is_last = len(self.actions) > TURNS
        won = int(is_last and int(seal[0], 16) < 8)
        return StepResult(f"{len(self.actions) - 1} {seal[:4]}", won, won, is_last)

    def expert_action(self):
        return "a"

    def valid_actions(self):
        return ["a", "b"]


def make_kind():
    return standard_kind(
        Tally,
        TASKS,
        name="tally",
        version="1",
        instructions="Say anything.",
        max_turns=TURNS,
        action_format="raw",
    )
