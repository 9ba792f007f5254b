"""An environment that any policy solves sometimes, to test training on successes."""

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import standard_environment


class Coin(Environment):
    """A task is solved if the bytes of the action and the task number add up to an even number."""

    def reset(self, data_idx):
        self.data_idx = data_idx
        return StepResult(f"toss {data_idx}", 0, 0, False)

    def step(self, action):
        won = (sum(action.encode()) + self.data_idx) % 2 == 0
        return StepResult("over", int(won), int(won), True)

    def expert_action(self):
        return "b" if self.data_idx % 2 == 0 else "a"

    def valid_actions(self):
        return ["a", "b"]


def served(name, factory=Coin):
    """Returns an environment with the rules of the coin."""
    return standard_environment(
        factory,
        [{"data_idx": i, "split": "train"} for i in range(64)],
        name=name,
        version="1",
        instructions="Call it.",
        max_turns=1,
        action_format="raw",
    )


def make_served_environment():
    return served("coin")
