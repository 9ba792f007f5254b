"""One ScienceWorld episode behind the text protocol."""

import dataclasses
import functools
from typing import Any

from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.sciworld.expert import GoldPath, room_of
from agentgym_envs.sciworld.original import OriginalSimulator
from agentgym_envs.sciworld.simulator import Answer, Simulator, shared_simulator
from agentgym_envs.sciworld.tasks import Task, all_tasks

FIRST_ACTION = "look around"
# An episode ends with the first move beyond these. Looking around takes no move, waiting several.
MAX_MOVES = 100
FULL_SCORE = 100
KEPT_SOLUTIONS = 1024  # finding one takes a second


@dataclasses.dataclass(frozen=True)
class Start(StepResult):
    """Answer to a reset; `observation` is what an agent is told: the task, then the room.

    Attributes:
      task: which task.
      description: what the agent must do.
      look: the first look around.
    """

    task: Task
    description: str
    look: str


@dataclasses.dataclass
class Episode:
    """One task being played.

    Attributes:
      task: which task.
      world: the simulator's part, a `World` or an `OriginalWorld`.
      description: what the agent must do.
      actions: so far, without the look around of the reset.
      last: the last answer.
      moves: actions that took time, counted by the simulator.
      gold: the solution, once asked for.
    """

    task: Task
    world: Any
    description: str
    actions: list[str]
    last: StepResult
    moves: int
    gold: GoldPath | None = None


class SciWorldEnvironment(Environment):
    """A ScienceWorld task. All environments of a process share one Java virtual machine.

    Args:
      is_compat: behave as AgentGym's server where that is odd; README.md lists where. Every
        environment then has a machine of its own.
    """

    def __init__(self, is_compat: bool = False):
        self._is_compat = is_compat
        self._own = OriginalSimulator(MAX_MOVES) if is_compat else None
        self._current: Episode | None = None

    @property
    def simulator(self) -> Simulator | OriginalSimulator:
        """What plays the episode."""
        return shared_simulator() if self._own is None else self._own

    @property
    def episode(self) -> Episode:
        """The task being played.

        Raises:
          EnvironmentFault: NOT_RESET.
        """
        if self._current is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET, "this environment was never reset; reset it with a data_idx"
            )
        return self._current

    def reset(self, data_idx: int) -> Start:
        """Starts task `data_idx` and looks around.

        Raises:
          EnvironmentFault: UNKNOWN_TASK.
        """
        task = self._task(data_idx)
        self._forget()
        simulator = self.simulator
        world: Any = simulator.load(task.task, task.variation)
        description = simulator.task_description(world)
        first = self._judge(simulator.step(world, FIRST_ACTION), score_before=0, moves=1)
        moves = simulator.moves(world)
        self._current = Episode(task, world, description, [], first, moves)
        return Start(
            observation=f"{description}\n{first.observation}",
            reward=first.reward,
            score=first.score,
            done=first.done,
            task=task,
            description=description,
            look=first.observation,
        )

    def step(self, action: str) -> StepResult:
        """Applies one action.

        Raises:
          EnvironmentFault: NOT_RESET; SIMULATOR if the simulator broke down (by default).
        """
        episode, simulator = self.episode, self.simulator
        answer = simulator.step(episode.world, action)
        episode.actions.append(action)
        if episode.gold is not None:
            episode.gold.saw(action)
        if answer.progress < 0 and not self._is_compat:
            self._refuse_broken(simulator, episode)
        episode.moves = simulator.moves(episode.world)
        episode.last = self._judge(answer, episode.last.score, episode.moves)
        return episode.last

    def expert_action(self) -> str:
        """The next action of the simulator's own solution; the first call takes a second."""
        episode, simulator = self.episode, self.simulator
        if episode.gold is None:
            episode.gold = GoldPath(*_solution(episode.task))
            for action in episode.actions:
                episode.gold.saw(action)
        return episode.gold.next_action(episode.last.observation, simulator.look(episode.world))

    def valid_actions(self) -> list[str]:
        """Actions that the simulator understands now, or the numbers it asks to choose from."""
        return self.simulator.valid_actions(self.episode.world)

    def snapshot(self) -> dict[str, Any]:
        """Task and actions; everything else follows from them."""
        episode = self.episode
        return {"data_idx": episode.task.data_idx, "actions": list(episode.actions)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Plays the actions of a snapshot again."""
        self.reset(snapshot["data_idx"])
        for action in snapshot["actions"]:
            self.step(action)

    def state(self) -> dict[str, Any]:
        """Task, goal, place, possessions and moves, for viewers."""
        if self._current is None:
            return {}
        episode, simulator = self.episode, self.simulator
        return {
            "data_idx": episode.task.data_idx,
            "task": episode.task.task,
            "variation": episode.task.variation,
            "goal": episode.description,
            "moves": episode.moves,
            "max_moves": MAX_MOVES,
            "room": room_of(simulator.look(episode.world)),
            "inventory": simulator.inventory(episode.world),
            "goal_progress": simulator.goal_progress(episode.world),
        }

    def close(self) -> None:
        """Gives the world back to the Java virtual machine; an own one is ended."""
        self._forget()
        if self._own is not None:
            self._own.close()

    def _forget(self) -> None:
        if self._current is not None:
            world, self._current = self._current.world, None
            self.simulator.forget(world)

    def _task(self, data_idx: int) -> Task:
        tasks = all_tasks()
        if self._is_compat and -len(tasks) <= data_idx < 0:
            data_idx += len(tasks)  # AgentGym's list takes negative indices
        if not 0 <= data_idx < len(tasks):
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK,
                f"sciworld has the tasks 0..{len(tasks) - 1}, data_idx was {data_idx}",
                compat_message="list index out of range",
            )
        return tasks[data_idx]

    def _judge(self, answer: Answer, score_before: float, moves: int) -> StepResult:
        """Score in 0..100, or -100 after a failure; rewards are its differences."""
        score = round(FULL_SCORE * answer.progress)
        return StepResult(
            observation=answer.text,
            reward=score - score_before,
            score=score,
            done=answer.is_complete or score < 0 or moves > MAX_MOVES,
        )

    def _refuse_broken(self, simulator: Simulator | OriginalSimulator, episode: Episode) -> None:
        """A progress below zero is a failure of the agent, or an exception in the simulator."""
        error = simulator.failure(episode.world)
        if error is not None:
            raise EnvironmentFault(
                ErrorKind.SIMULATOR,
                f"sciworld: the simulator broke down in task {episode.task.data_idx}: {error}",
            )


@functools.lru_cache(maxsize=KEPT_SOLUTIONS)
def _solution(task: Task) -> tuple[list[str], list[str]]:
    """The simulator's solution, and the room before each of its actions."""
    simulator = shared_simulator()
    actions = simulator.gold_path(task.task, task.variation)
    world = simulator.load(task.task, task.variation)
    simulator.step(world, FIRST_ACTION)
    rooms = []
    for action in actions:
        rooms.append(room_of(simulator.look(world)))
        simulator.step(world, action)
    simulator.forget(world)
    return actions, rooms


def make_environment() -> SciWorldEnvironment:
    """An environment with our rules."""
    return SciWorldEnvironment()


def make_compat_environment() -> SciWorldEnvironment:
    """An environment that behaves as AgentGym's server."""
    return SciWorldEnvironment(is_compat=True)
