"""An environment of two turns that only the first action decides, so that its values are known."""

import dataclasses

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import Answers, ResetBody, ServedEnvironment

SPEC = EnvironmentSpec("two_turns", "1", "Say win.", "raw", 64, "0" * 64, 1)


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
    return ServedEnvironment(
        spec=SPEC,
        banner="two turns",
        factory=TwoTurns,
        compat_factory=TwoTurns,
        tasks=lambda: [{"data_idx": i, "split": "train"} for i in range(64)],
        answers=Answers(
            create=lambda session_id, first: {"id": session_id},
            reset=lambda session_id, first: {"observation": first.observation},
            step=dataclasses.asdict,
            observation=lambda env, last: "unseen" if last is None else last.observation,
        ),
        create_body=None,
        reset_body=ResetBody,
        resets_on_create=False,
        compat_refused_when_done=frozenset({"step", "observation"}),
        compat_not_reset="not reset yet",
        compat_closed="session {id} is lost",
    )
