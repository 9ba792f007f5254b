"""One BabyAI world behind the text protocol."""

import dataclasses
from typing import Any

from agentgym_envs.babyai import levels, render
from agentgym_envs.babyai.expert import next_action
from agentgym_envs.babyai.paths import Moves
from agentgym_envs.babyai.scene import Scene, describe
from agentgym_envs.babyai.scoring import START, OwnScoring, Scoring, Verdict
from agentgym_envs.babyai.view import View, object_name
from agentgym_envs.babyai.world import World, make_world
from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.protocol import ErrorKind

NO_CHANGE = "No change in state."
NOT_RECOGNIZED = "The action is not recognized. Please check valid actions."


@dataclasses.dataclass
class Episode:
    """One task being played; its fields change with every action.

    Attributes:
      task: which task.
      goal: the goal as the agent is told it.
      world: the simulator.
      view: what the agent sees.
      scene: the view in words, and the actions it offers.
      verdict: reward, score and end.
      text: what was said last, without goal and action list.
      actions: taken so far, to repeat them elsewhere.
    """

    task: levels.Task
    goal: str
    world: World
    view: View
    scene: Scene
    verdict: Verdict
    text: str
    actions: list[str] = dataclasses.field(default_factory=list)


class BabyAIEnvironment(Environment):
    """A minigrid level told in text, with actions of several primitive moves.

    An action stops at the first of its moves after which the view looks the same. The episode's
    limit is counted in primitive moves.

    Args:
      scoring: `OwnScoring()`, or `CompatScoring()` to behave as AgentGym's server.
    """

    def __init__(self, scoring: Scoring | None = None):
        self._scoring = OwnScoring() if scoring is None else scoring
        self._episode: Episode | None = None

    def reset(self, data_idx: int) -> StepResult:
        """Starts task `data_idx`: level `data_idx % 40`, seed `data_idx // 40`.

        Raises:
          EnvironmentFault: UNKNOWN_TASK for a negative index.
        """
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
        """Applies one action, whose case and surrounding space do not matter.

        An action that is not on offer changes nothing and is answered with the reason.

        Raises:
          EnvironmentFault: NOT_RESET before the first reset, FINISHED after the end.
        """
        episode = self._playing()
        action = action.lower().strip()
        moves = () if "check" in action else episode.scene.actions.get(action, ())
        if moves:
            self._move(episode, moves)
        else:
            episode.text = self._answer_without_moves(episode.scene, action)
            episode.verdict = self._scoring.after_nothing(episode.verdict)
        episode.actions.append(action)
        return _result(episode, f"{episode.text}{_action_list(episode.scene)}")

    def observe(self) -> StepResult:
        """What was said last, after the goal; also after the end of the episode."""
        episode = self._started()
        goal, actions = f"Your goal: {episode.goal}\n", _action_list(episode.scene)
        return _result(episode, f"{goal}{episode.text}{actions}")

    def expert_action(self) -> str:
        """The next action of a scripted player that knows the whole grid."""
        episode = self._playing()
        stops = self._scoring.ends_action(terminated=True, truncated=False)
        return next_action(episode.world, episode.scene.actions, stops_at_success=stops)

    def valid_actions(self) -> list[str]:
        """The actions on offer that move something."""
        return [action for action, moves in self._playing().scene.actions.items() if moves]

    def state(self) -> dict[str, Any]:
        """Task, goal, moves, and the whole world: column and row count cells from the top left.

        `grid` is minigrid's own drawing, in which some colours look the same; `things` are all but
        the walls, as [column, row, name].
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
            "position": [int(c) for c in world.agent_pos],
            "facing": ("right", "down", "left", "up")[world.agent_dir],
            "carrying": None if world.carrying is None else object_name(world.carrying),
            "grid": str(world).split("\n"),
            "things": _things(world),
        }

    def snapshot(self) -> dict[str, Any]:
        """The task and the actions so far: a world is a function of both.

        Raises:
          EnvironmentFault: NOT_RESET.
        """
        episode = self._started()
        return {"data_idx": episode.task.data_idx, "actions": list(episode.actions)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Plays the actions of a snapshot again."""
        self.reset(snapshot["data_idx"])
        for action in snapshot["actions"]:
            self.step(action)

    def render(self) -> str:
        """The whole grid as a PNG data URI."""
        return render.png_data_uri(self._started().world)

    def _move(self, episode: Episode, moves: Moves) -> None:
        """Walks through the primitive moves of one action."""
        for move in moves:
            view, reward, terminated, truncated, _ = episode.world.step(move)
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

    def _started(self) -> Episode:
        if self._episode is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET,
                "this environment was never reset; reset it with a data_idx first",
            )
        return self._episode

    def _playing(self) -> Episode:
        episode = self._started()
        if episode.verdict.done:
            raise EnvironmentFault(
                ErrorKind.FINISHED, "this episode is over; reset to start another one"
            )
        return episode


def goal_text(mission: str) -> str:
    """A mission as AgentGym tells it: `then` and `after you` become `and`, losing the order."""
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


def _things(world: World) -> list[list[Any]]:
    """Column, row and name of everything in the grid that is no wall."""
    grid = world.grid
    return [
        [number % grid.width, number // grid.width, object_name(thing)]
        for number, thing in enumerate(grid.grid)
        if thing is not None and thing.type != "wall"
    ]
