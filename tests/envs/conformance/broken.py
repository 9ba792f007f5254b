"""A small environment that passes every conformance check, and variants that each fail one."""

import dataclasses
import os
import random
import time

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.host import SessionHost
from agentgym_envs.base.served import ExtraRoute, ResetBody, standard_environment

GOAL = 6
TASKS = [{"data_idx": i, "split": "train" if i % 2 else "test", "start": i} for i in range(4)]


class Counter(Environment):
    """An environment that counts up from the task index to GOAL; all actions but `up` are rejected."""

    def reset(self, data_idx):
        self.count = data_idx
        return self.told("The count is", 0)

    def step(self, action):
        if action != "up":
            return self.told("No such action. The count is", 0)
        self.count += 1
        return self.told("The count is", int(self.count == GOAL))

    def told(self, text, reward):
        return StepResult(f"{text} {self.count}", reward, reward, self.count >= GOAL)

    def expert_action(self):
        return "up"

    def valid_actions(self):
        return ["up"]

    def state(self):
        return {"count": self.count}

    def snapshot(self):
        return self.count

    def restore(self, snapshot):
        self.count = snapshot


def served(factory=Counter, **changes):
    made = standard_environment(
        factory,
        TASKS,
        name="counter",
        version="1",
        instructions="Count up to six.",
        max_turns=10,
        refusal="No such",
    )
    return dataclasses.replace(made, **changes)


def environment_with_spec(**changes):
    return served(spec=dataclasses.replace(served().spec, **changes))


def environment_with_tasks(tasks):
    spec = dataclasses.replace(served().spec, manifest_sha256=manifest.sha256(tasks))
    return served(tasks=lambda: tasks, spec=spec)


class NanReward(Counter):
    def step(self, action):
        return dataclasses.replace(super().step(action), reward=float("nan"))


class LostConnection(Counter):
    def step(self, action):
        raise ConnectionError(f"lost {action} {random.random()}")


class ClosedDoor(Counter):
    def __init__(self):
        raise KeyError("the door")


class EmptyText(Counter):
    def step(self, action):
        return dataclasses.replace(super().step(action), observation=" \n")


class NumberForDone(Counter):
    def step(self, action):
        result = super().step(action)
        return dataclasses.replace(result, done=int(result.done))


class TupleForResult(Counter):
    def step(self, action):
        return dataclasses.astuple(super().step(action))


class ForgottenReward(Counter):
    def step(self, action):
        return dataclasses.replace(super().step(action), reward=0)


class LuckyReset(Counter):
    """A counter that uses the global random state, as some simulators wrongly do."""

    def reset(self, data_idx):
        first = super().reset(data_idx)
        return dataclasses.replace(first, observation=f"{first.observation}, {random.random()}")


class StickyReset(Counter):
    """A counter whose observation contains its number of resets."""

    resets = 0

    def reset(self, data_idx):
        self.resets += 1
        first = super().reset(data_idx)
        return dataclasses.replace(first, observation=f"{first.observation}, {self.resets}")


class LuckyStep(Counter):
    def step(self, action):
        result = super().step(action)
        return dataclasses.replace(result, observation=f"{result.observation}, {random.random()}")


class CostlyAdvice(Counter):
    """A counter whose count rises when the expert is asked for an action."""

    def expert_action(self):
        self.count += 1
        return "up"


class HashOrder(Counter):
    """A counter whose first observation contains a set in iteration order.

    The order depends on the hash seed of the process.
    """

    def reset(self, data_idx):
        first = super().reset(data_idx)
        words = " ".join({f"word {i}" for i in range(50)})
        return dataclasses.replace(first, observation=f"{first.observation}. {words}")


class SharedCount(Counter):
    """Counters that share one count per process; a single environment behaves correctly."""

    shared = 0

    def reset(self, data_idx):
        first = super().reset(data_idx)
        SharedCount.shared = self.count
        return first

    def step(self, action):
        self.count = SharedCount.shared
        result = super().step(action)
        SharedCount.shared = self.count
        return result


class RefusingStart(Counter):
    def reset(self, data_idx):
        super().reset(data_idx)
        return self.told("No such luck: the count is", 0)


class RefusedActions(Counter):
    def valid_actions(self):
        return ["up", "down"]


class SameActions(Counter):
    def valid_actions(self):
        return ["up", "up"]


class NoActions(Counter):
    def valid_actions(self):
        return []


class LostExpert(Counter):
    def expert_action(self):
        raise LookupError("which way is up?")


class IdleExpert(Counter):
    def expert_action(self):
        return "down"


class SetState(Counter):
    def state(self):
        return {"counts": {self.count}}


class TupleState(Counter):
    def state(self):
        return {"counts": (self.count,)}


class ForgetfulSnapshot(Counter):
    def restore(self, snapshot):
        self.count = 0


class HandleSnapshot(Counter):
    """A counter whose snapshot is valid only in the process that made it."""

    saved = []

    def snapshot(self):
        HandleSnapshot.saved.append(self.count)
        return len(HandleSnapshot.saved) - 1

    def restore(self, snapshot):
        self.count = HandleSnapshot.saved[snapshot]


class ObjectSnapshot(Counter):
    def snapshot(self):
        return {self.count}


class CloseOnce(Counter):
    is_open = True

    def close(self):
        if not self.is_open:
            raise RuntimeError("closed already")
        self.is_open = False


class OneEpisode(Counter):
    """A counter that cannot be reset after the end of an episode."""

    count = 0

    def reset(self, data_idx):
        if self.count >= GOAL:
            raise RuntimeError("the abacus is full")
        return super().reset(data_idx)


class LooseBody(ResetBody):
    """A request body that accepts any text as session id."""

    id: int | str


class LaxHost(SessionHost):
    """A host that answers every request, even without an episode."""

    def answer(self, operation, session_id, argument):
        return b"true"


class Choosy(Counter):
    """A counter that fails on actions that are not ASCII."""

    def step(self, action):
        action.encode("ascii")
        return super().step(action)


class Fragile(Counter):
    """A counter whose process is ended by long actions."""

    def step(self, action):
        if len(action) > 9000:
            os._exit(1)
        return super().step(action)


class ProcessTold(Counter):
    """A counter that reports the start time of its process, so answers differ between workers."""

    def step(self, action):
        result = super().step(action)
        return dataclasses.replace(result, observation=f"{result.observation} since {STARTED}")


STARTED = time.monotonic_ns()


def lost_route(environment):
    raise LookupError("there is no paint")


ROUTE = ExtraRoute("/paint", "GET", lost_route)
