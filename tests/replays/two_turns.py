"""An environment of two turns that only the first action decides, so that its values are known."""

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import standard_environment


class TwoTurns(Environment):
    """A task is solved if the first of its two actions is `win`."""

    greeting = "task {}"
    echo = "heard {}"
    num_turns = 2

    def reset(self, data_idx):
        self.actions = []
        return StepResult(self.greeting.format(data_idx), 0, 0, False)

    def step(self, action):
        self.actions.append(action)
        if len(self.actions) < self.num_turns:
            return StepResult(self.echo.format(len(action)), 0, 0, False)
        won = self.actions[0] == "win"
        return StepResult("over", int(won), int(won), True)

    def expert_action(self):
        return "win"

    def valid_actions(self):
        return ["win", "lose"]


def make_served_environment():
    return standard_environment(
        TwoTurns,
        [{"data_idx": i, "split": "train"} for i in range(64)],
        name="two_turns",
        version="1",
        instructions="Say win.",
        max_turns=1,
        action_format="raw",
    )
