"""A small environment whose options determine the text of all observations."""

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.served import standard_environment


class Parrot(Environment):
    """An environment with the same observation after every reset and action."""

    def __init__(self, word, times):
        self.text = " ".join([word] * times)

    def reset(self, data_idx):
        return StepResult(self.text, 0, 0, False)

    def step(self, action):
        return StepResult(self.text, 1, 1, True)

    def expert_action(self):
        return "talk"

    def valid_actions(self):
        return ["talk"]


def make_served_environment(*, word: str = "polly", times: int = 3):
    return standard_environment(
        lambda: Parrot(word, times),
        [{"data_idx": 0, "split": "train"}],
        name="parrot",
        version=word,
        instructions="Make it talk.",
        max_turns=1,
    )
