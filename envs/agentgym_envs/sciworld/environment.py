"""ScienceWorld tasks as an environment with text observations and actions."""

import dataclasses
import functools
from typing import Any

from agentgym_envs.base.environment import EnvironmentFault, StepResult, check_task
from agentgym_envs.base.episodic import ReplayedEnvironment
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.sciworld.expert import GoldPath, room_of
from agentgym_envs.sciworld.original import OriginalSimulator
from agentgym_envs.sciworld.simulator import Answer, Simulator, shared_simulator
from agentgym_envs.sciworld.tasks import Task, all_tasks

FIRST_ACTION = "look around"
# An episode ends with the first move beyond this limit. Looking around takes no move, waiting takes
# several.
MAX_MOVES = 100
FULL_SCORE = 100
KEPT_SOLUTIONS = 1024  # finding a solution takes a second


@dataclasses.dataclass(frozen=True)
class Start(StepResult):
    """Answer to a reset; `observation` is the task description, then that of the room.

    Attributes:
      description: Task description for the agent.
      look: Observation of the first `look around`.
    """

    task: Task
    description: str
    look: str


@dataclasses.dataclass
class Episode:
    """An episode of one task.

    Attributes:
      actions: Actions so far, without the `look around` of the reset.
      moves: Number of moves, as counted by the simulator.
      gold: Solution; None before the first request for it.
    """

    task: Task
    world: Any
    description: str
    actions: list[str]
    last: StepResult
    moves: int
    gold: GoldPath | None = None

    @property
    def data_idx(self) -> int:
        """Index of the task."""
        return self.task.data_idx

    @property
    def done(self) -> bool:
        """True after the last action, although ScienceWorld accepts further actions."""
        return self.last.done


class SciWorldEnvironment(ReplayedEnvironment[Episode]):
    """A ScienceWorld task. All environments of a process share one Java virtual machine (JVM).

    Args:
      is_compat: True to reproduce the oddities of AgentGym's server, which README.md lists. Every
        environment then has a separate JVM.
    """

    name = "sciworld"

    def __init__(self, is_compat: bool = False):
        self._is_compat = is_compat
        self._own = OriginalSimulator(MAX_MOVES) if is_compat else None

    @property
    def simulator(self) -> Simulator | OriginalSimulator:
        """Simulator that runs the episode."""
        return shared_simulator() if self._own is None else self._own

    def reset(self, data_idx: int) -> Start:
        """Starts task `data_idx` and looks around."""
        task = self._task(data_idx)
        self._forget()
        simulator = self.simulator
        world: Any = simulator.load(task.task, task.variation)
        description = simulator.task_description(world)
        first = self._judge(simulator.step(world, FIRST_ACTION), score_before=0, moves=1)
        moves = simulator.moves(world)
        self._episode = Episode(task, world, description, [], first, moves)
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
          EnvironmentFault: NOT_RESET; or SIMULATOR if the simulator broke down (not under compat).
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
        """Returns the next action of the simulator's solution; the first call takes a second."""
        episode, simulator = self.episode, self.simulator
        if episode.gold is None:
            episode.gold = GoldPath(*_solution(episode.task))
            for action in episode.actions:
                episode.gold.saw(action)
        return episode.gold.next_action(
            episode.last.observation, simulator.fact(episode.world, "look")
        )

    def valid_actions(self) -> list[str]:
        """Returns the actions that the simulator accepts now.

        After an ambiguous action, these are the numbers of the choices.
        """
        return self.simulator.valid_actions(self.episode.world)

    def state(self) -> dict[str, Any]:
        """Returns task, goal, room, inventory and moves, for viewers."""
        if self._episode is None:
            return {}
        episode, simulator = self.episode, self.simulator
        return {
            "data_idx": episode.task.data_idx,
            "task": episode.task.task,
            "variation": episode.task.variation,
            "goal": episode.description,
            "moves": episode.moves,
            "max_moves": MAX_MOVES,
            "room": room_of(simulator.fact(episode.world, "look")),
            "inventory": simulator.fact(episode.world, "inventory"),
            "goal_progress": simulator.fact(episode.world, "goal_progress"),
        }

    def close(self) -> None:
        """Releases the episode in the JVM; stops the JVM if it is not shared."""
        self._forget()
        if self._own is not None:
            self._own.close()

    def _forget(self) -> None:
        if self._episode is not None:
            world, self._episode = self._episode.world, None
            self.simulator.forget(world)

    def _task(self, data_idx: int) -> Task:
        tasks = all_tasks()
        if self._is_compat and -len(tasks) <= data_idx < 0:
            data_idx += len(tasks)  # AgentGym's list accepts negative indices
        check_task(self.name, data_idx, len(tasks), "list index out of range")
        return tasks[data_idx]

    def _judge(self, answer: Answer, score_before: float, moves: int) -> StepResult:
        """Returns the result with a score in 0..100, or -100 after a failure.

        The reward is the change of the score.
        """
        score = round(FULL_SCORE * answer.progress)
        return StepResult(
            observation=answer.text,
            reward=score - score_before,
            score=score,
            done=answer.is_complete or score < 0 or moves > MAX_MOVES,
        )

    def _refuse_broken(self, simulator: Simulator | OriginalSimulator, episode: Episode) -> None:
        """Raises SIMULATOR if an exception in the simulator caused the negative progress."""
        error = simulator.failure(episode.world)
        if error is not None:
            raise EnvironmentFault(
                ErrorKind.SIMULATOR,
                f"sciworld: the simulator broke down in task {episode.task.data_idx}: {error}",
            )


@functools.lru_cache(maxsize=KEPT_SOLUTIONS)
def _solution(task: Task) -> tuple[list[str], list[str]]:
    """Returns the simulator's solution, and the agent's room before each of its actions."""
    simulator = shared_simulator()
    actions = simulator.gold_path(task.task, task.variation)
    world = simulator.load(task.task, task.variation)
    simulator.step(world, FIRST_ACTION)
    rooms = []
    for action in actions:
        rooms.append(room_of(simulator.fact(world, "look")))
        simulator.step(world, action)
    simulator.forget(world)
    return actions, rooms
