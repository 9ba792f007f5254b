"""A small environment for the server tests that can fail in many ways."""

import dataclasses
import os
import pathlib
import signal
import time

from agentgym_envs.base.environment import Environment, SimulatorLost, StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    ExtraRoute,
    ResetBody,
    ServedEnvironment,
    StepRoute,
)

SPEC = EnvironmentSpec("door", "1", "Open the door.", "react", 3, "0" * 64, 5)


class Door(Environment):
    """A door that the action `open` opens; actions such as `crash` and `spin` cause failures."""

    def reset(self, data_idx):
        self.data_idx = data_idx
        self.steps = 0
        return StepResult(f"door {data_idx} is shut", 0, 0, False)

    def step(self, action):
        self.steps += 1
        word, _, number = action.partition(" ")
        if word == "crash":
            raise RuntimeError("hinge broke")
        if word == "sleep":
            time.sleep(float(number))
        elif word == "hold":  # until the file of this name exists
            pathlib.Path(f"{number}.began").touch()
            while not pathlib.Path(number).exists():
                time.sleep(0.01)
        elif word == "spin":
            while True:
                pass
        elif word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif word == "exit":
            os._exit(0)
        elif word == "lose":
            raise SimulatorLost("the house burnt down")
        elif word == "dice":
            return StepResult(os.urandom(8).hex(), 0, 0, False)
        elif word == "nan":
            return StepResult("an odd door", float("nan"), 0, False)
        elif word == "print":
            print("a simulator that talks to stdout")  # noqa: T201
        opened = int(action == "open")
        return StepResult(f"{self.steps}: you did {action}", opened, opened, bool(opened))

    def expert_action(self):
        return "open"

    def valid_actions(self):
        return ["open", "knock"]

    def state(self):
        return {"door": self.data_idx, "pid": os.getpid()}


def make_served_environment():
    return ServedEnvironment(
        spec=SPEC,
        banner="a door",
        factory=Door,
        compat_factory=Door,
        tasks=lambda: [{"data_idx": i, "split": "train"} for i in range(3)],
        answers=Answers(
            create=lambda session_id, first: {"id": session_id},
            reset=lambda session_id, first: {"observation": first.observation},
            step=dataclasses.asdict,
            observation=lambda door, last: "unseen" if last is None else last.observation,
        ),
        create_body=None,
        reset_body=ResetBody,
        resets_on_create=False,
        compat_refused_when_done=frozenset({"step", "observation"}),
        extra_routes=(
            ExtraRoute("/color", "GET", lambda door: "red"),
            ExtraRoute("/paint", "POST", lambda door: {"painted": door.data_idx}),
        ),
        step_routes=(
            StepRoute(
                "/shout", str.lower, lambda door, result: {"heard": result.observation.upper()}
            ),
        ),
        compat_not_reset="no door yet",
        compat_closed="door {id} was torn down",
    )
