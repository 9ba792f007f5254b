"""An environment that any policy solves sometimes, to test training on successes."""

import dataclasses

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import Answers, ResetBody, ServedEnvironment

SPEC = EnvironmentSpec("coin", "1", "Call it.", "raw", 64, "0" * 64, 1)


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


def make_served_environment(spec=SPEC):
    return ServedEnvironment(
        spec=spec,
        banner="a coin",
        factory=Coin,
        compat_factory=Coin,
        tasks=lambda: [{"data_idx": i, "split": "train"} for i in range(64)],
        answers=Answers(
            create=lambda session_id, first: {"id": session_id},
            reset=lambda session_id, first: {"observation": first.observation},
            step=dataclasses.asdict,
            observation=lambda coin, last: "unseen" if last is None else last.observation,
        ),
        create_body=None,
        reset_body=ResetBody,
        resets_on_create=False,
        compat_refused_when_done=frozenset({"step", "observation"}),
        compat_not_reset="no toss yet",
        compat_closed="coin {id} is lost",
    )
