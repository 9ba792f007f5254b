"""BabyAI levels as an environment with text observations and actions."""

import dataclasses
from typing import Any

from agentgym_envs.babyai import levels, render
from agentgym_envs.babyai.expert import next_action
from agentgym_envs.babyai.paths import Moves
from agentgym_envs.babyai.scene import Scene, describe
from agentgym_envs.babyai.scoring import START, Scoring, Verdict
from agentgym_envs.babyai.view import View, object_name
from agentgym_envs.babyai.world import World, make_world
from agentgym_envs.base.environment import EnvironmentFault, StepResult
from agentgym_envs.base.episodic import ReplayedEnvironment
from agentgym_envs.base.protocol import ErrorKind

NO_CHANGE = "No change in state."
NOT_RECOGNIZED = "The action is not recognized. Please check valid actions."


@dataclasses.dataclass
class Episode:
    """Mutable state of an episode.

    Attributes:
      scene: Text description of the view, with the available actions.
      verdict: Reward, score and end of the episode after the latest action.
      walked: Cells (column, row) that the agent entered during the latest action.
    """

    task: levels.Task
    goal: str
    world: World
    view: View
    scene: Scene
    verdict: Verdict
    text: str
    actions: list[str] = dataclasses.field(default_factory=list)
    walked: list[list[int]] = dataclasses.field(default_factory=list)

    @property
    def data_idx(self) -> int:
        """Index of the task."""
        return self.task.data_idx

    @property
    def done(self) -> bool:
        """True if the episode is over."""
        return self.verdict.done


class BabyAIEnvironment(ReplayedEnvironment[Episode]):
    """A minigrid level as text. Most actions consist of several primitive moves.

    An action stops after the first of its moves that leaves the view unchanged. The move limit of
    an episode counts primitive moves.

    Args:
      scoring: `Scoring()`, or `CompatScoring()` to behave like AgentGym's server.
    """

    name = "babyai"

    def __init__(self, scoring: Scoring | None = None):
        self._scoring = Scoring() if scoring is None else scoring

    def reset(self, data_idx: int) -> StepResult:
        """Starts task `data_idx`: level `data_idx % 40`, seed `data_idx // 40`."""
        if data_idx < 0:
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK,
                f"babyai tasks are numbered from 0, data_idx was {data_idx}",
                compat_message="Seed must be greater or equal to zero, actual value: "
                f"{data_idx // len(levels.LEVELS)}",
            )
        task = levels.task(data_idx)
        world, view = make_world(task)
        scene = _describe(world, view)
        goal = goal_text(world.mission)
        self._episode = Episode(task, goal, world, view, scene, START, scene.description)
        return self.observe()

    def step(self, action: str) -> StepResult:
        """Applies one action, ignoring its case and surrounding space.

        An unavailable action changes nothing; the observation gives the reason.
        """
        episode = self.playing
        action = action.lower().strip()
        episode.walked = []
        moves = () if "check" in action else episode.scene.actions.get(action, ())
        if moves:
            self._move(episode, moves)
        else:
            episode.text = self._answer_without_moves(episode.scene, action)
            episode.verdict = self._scoring.after_nothing(episode.verdict)
        episode.actions.append(action)
        return _result(episode, f"{episode.text}{_action_list(episode.scene)}")

    def observe(self) -> StepResult:
        """Returns the goal and the latest observation, even after the end of the episode."""
        episode = self.episode
        goal, actions = f"Your goal: {episode.goal}\n", _action_list(episode.scene)
        return _result(episode, f"{goal}{episode.text}{actions}")

    def expert_action(self) -> str:
        """Returns the next action of a scripted agent that knows the whole grid."""
        episode = self.playing
        stops = self._scoring.ends_action(terminated=True, truncated=False)
        return next_action(episode.world, episode.scene.actions, stops_at_success=stops)

    def valid_actions(self) -> list[str]:
        """Returns the available actions that contain at least one move."""
        return [action for action, moves in self.playing.scene.actions.items() if moves]

    def state(self) -> dict[str, Any]:
        """Returns the task, the goal, the number of moves and the whole grid, for viewers.

        Columns and rows are counted from the top left.

        `grid` is minigrid's own text drawing, in which some colours look the same. `things` lists
        everything except walls as [column, row, name]. `walked` lists the cells that the agent entered
        during the latest action.
        """
        if self._episode is None:
            return {}
        task, world = self._episode.task, self._episode.world
        return {
            "data_idx": task.data_idx,
            "level": task.level,
            "goal": world.mission,
            "moves": world.step_count,
            "max_moves": world.max_steps,
            "position": _cell(world),
            "walked": self._episode.walked,
            "facing": ("right", "down", "left", "up")[world.agent_dir],
            "carrying": None if world.carrying is None else object_name(world.carrying),
            "grid": str(world).split("\n"),
            "things": _things(world),
        }

    def render(self) -> str:
        """Returns a picture of the whole grid as a PNG data URI."""
        return render.png_data_uri(self.episode.world)

    def _move(self, episode: Episode, moves: Moves) -> None:
        """Executes the primitive moves of one action."""
        for move in moves:
            before = _cell(episode.world)
            view, reward, terminated, truncated, _ = episode.world.step(move)
            if _cell(episode.world) != before:
                episode.walked.append(_cell(episode.world))
            looks_same, episode.view = view == episode.view, view
            if looks_same or self._scoring.ends_action(terminated, truncated):
                break
        episode.verdict = self._scoring.after_moves(episode.verdict, reward, terminated, truncated)
        episode.scene = _describe(episode.world, episode.view)
        episode.text = episode.scene.description + episode.verdict.note

    def _answer_without_moves(self, scene: Scene, action: str) -> str:
        if "check" in action:
            return f"You can take the following actions: {', '.join(scene.actions)}"
        if action == "" or action in scene.actions:
            return NO_CHANGE
        if action in scene.refusals:
            compat = scene.compat_refusals.get(action)
            return self._scoring.refusal(scene.refusals[action], compat)
        return NOT_RECOGNIZED


def goal_text(mission: str) -> str:
    """Converts a mission to AgentGym's wording, in which `then` and `after you` become `and`."""
    return mission.replace("then", "and").replace("after you", "and")


def _describe(world: World, view: View) -> Scene:
    carrying = None if world.carrying is None else object_name(world.carrying)
    return describe(view, world.agent_dir, carrying)


def _action_list(scene: Scene) -> str:
    quoted = ", ".join(f'"{action}"' for action in scene.actions)
    return f"\nAvailable actions: [{quoted}]"


def _result(episode: Episode, observation: str) -> StepResult:
    verdict = episode.verdict
    return StepResult(observation, verdict.reward, verdict.score, verdict.done)


def _cell(world: World) -> list[int]:
    """Returns column and row of the agent."""
    return [int(c) for c in world.agent_pos]


def _things(world: World) -> list[list[Any]]:
    """Returns column, row and name of everything in the grid except walls."""
    grid = world.grid
    return [
        [number % grid.width, number // grid.width, object_name(thing)]
        for number, thing in enumerate(grid.grid)
        if thing is not None and thing.type != "wall"
    ]
