"""An environment that remembers every action.

A repeated or missing action changes all later observations.
"""

import hashlib

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import standard_environment

TURNS = 3
TASKS = [{"data_idx": i, "split": "train"} for i in range(64)]


class Tally(Environment):
    """An environment that accepts any text as action; a hash of all actions decides success."""

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


def make_served_environment():
    return standard_environment(
        Tally,
        TASKS,
        name="tally",
        version="1",
        instructions="Say anything.",
        max_turns=TURNS,
        action_format="raw",
    )
