"""Episodes of the tool environments."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_envs.base.environment import StepResult, check_task
from agentgym_envs.base.episodic import ReplayedEnvironment
from agentgym_envs.base.protocol import clean_text
from agentgym_envs.tools.actions import ToolError, find_call, read_call, write_call
from agentgym_envs.tools.tasks import Task
from agentgym_envs.tools.world import World, parameters

FORMAT_ERROR = (
    'Format error, please response in the format of  "Action: [your action] with Action Input: '
    "[your action input]"
)
REFUSAL = r"Format error|Observation: ERROR \|"


@dataclasses.dataclass
class Episode:
    """State of one episode, which every action changes.

    Attributes:
      planned: Number of the expert's calls that were made so far, in their order.
      score: 1 if the task was solved; under AgentGym's rules, the best progress so far.
    """

    data_idx: int
    task: Task
    world: World
    last: StepResult
    actions: list[str] = dataclasses.field(default_factory=list)
    planned: int = 0
    score: float = 0.0

    @property
    def done(self) -> bool:
        """True if the episode is over."""
        return self.last.done


class ToolEnvironment(ReplayedEnvironment[Episode]):
    """Tasks that are solved by calls of tools; the call of `finish` ends an episode.

    Args:
      is_compat: True for AgentGym's rules: the reward is the best progress so far, every call with
        the word `finish` ends the episode, and later steps are answered.
    """

    def __init__(
        self,
        name: str,
        tasks: Sequence[Task],
        make_world: Callable[..., World],
        *,
        is_compat: bool,
    ):
        self.name = name  # type: ignore[misc]  # one class serves five environments
        self._tasks = tasks
        self._make_world = make_world
        self._is_compat = is_compat

    def reset(self, data_idx: int) -> StepResult:
        """Starts a task."""
        task = task_at(self.name, self._tasks, data_idx)
        first = StepResult(_start(task), reward=0.0, score=0.0, done=False)
        self._episode = Episode(data_idx, task, self._make_world(**task.setup), first)
        return first

    def step(self, action: str) -> StepResult:
        """Runs the call in a text."""
        episode = self.episode if self._is_compat else self.playing
        episode.actions.append(action)
        call = find_call(clean_text(action))
        if call is None:
            episode.last = self._result(episode, FORMAT_ERROR, done=False)
        else:
            answer, done = self._run(episode, call)
            text = f"Observation: {answer}\nGive me one action."
            episode.last = self._result(episode, text, done=done)
        return episode.last

    def expert_action(self) -> str:
        """Returns the first call of the task's plan that was not made yet."""
        episode = self.playing
        if episode.planned < len(episode.task.calls):
            return write_call(*episode.task.calls[episode.planned])
        return write_call("finish", episode.task.answer)

    def valid_actions(self) -> list[str]:
        """Returns calls with sample arguments, which do not depend on the goal."""
        world, values = type(self.playing.world), self.playing.world.samples()
        calls = []
        for name in world.tools:
            names = [p.name for p in parameters(world, name) if p.default is p.empty]
            if not set(names) <= set(values):
                continue
            for i in range(max((len(values[n]) for n in names), default=1)):
                row = {n: values[n][i % len(values[n])] for n in names}
                calls.append(write_call(name, row))
        return list(dict.fromkeys(calls))

    def state(self) -> dict[str, Any]:
        """Returns the goal, the number of actions and the facts of the world."""
        if self._episode is None:
            return {}
        episode = self._episode
        return {
            "data_idx": episode.data_idx,
            "goal": episode.task.goal,
            "num_actions": len(episode.actions),
            **episode.world.state(),
        }

    def last_observation(self) -> str:
        """Returns the answer to `GET /observation`; under `--compat`, the first observation."""
        return _start(self.episode.task) if self._is_compat else self.episode.last.observation

    def _run(self, episode: Episode, call: str) -> tuple[str, bool]:
        """Runs a call; returns the text of its result, and True if it ends the episode."""
        world = episode.world
        try:
            name, given = read_call(call)
            if name not in world.tools:
                return world.unknown(name), self._is_compat and "finish" in call.lower()
            result = world.run(name, given)
        except ToolError as error:
            return error.text, False
        if episode.task.calls[episode.planned : episode.planned + 1] == ((name, given),):
            episode.planned += 1
        if self._is_compat:
            done = "finish" in call.lower()
            progress = world.progress(episode.task.expected, result)
            episode.score = max(episode.score, progress)
        else:
            done = name == "finish"
            if done:
                episode.score = float(world.is_solved(episode.task.expected, result))
        return str(result), done

    def _result(self, episode: Episode, text: str, *, done: bool) -> StepResult:
        before = 0.0 if self._is_compat else episode.last.score
        return StepResult(text, reward=episode.score - before, score=episode.score, done=done)


def task_at(name: str, tasks: Sequence[Task], data_idx: int) -> Task:
    """Returns a task of an environment.

    Raises:
      EnvironmentFault: UNKNOWN_TASK.
    """
    check_task(name, data_idx, len(tasks))
    return tasks[data_idx]


def _start(task: Task) -> str:
    return (
        "Now new trial starts.\nYou should perform actions to accomplish the goal: "
        f"{task.goal}\nGive me one action."
    )


def describe_tools(world: type[World]) -> str:
    """Returns a line for each tool, with its parameters and its description."""
    lines = []
    for name in world.tools:
        words = [p.name + ("" if p.default is p.empty else "?") for p in parameters(world, name)]
        lines.append(f"{name}({', '.join(words)}) - {inspect.getdoc(getattr(world, name))}")
    return "\n".join(lines)
