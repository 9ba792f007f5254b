"""One BabyAI world behind the text protocol."""

from typing import Any

from agentgym_envs.babyai import levels, render
from agentgym_envs.babyai.expert import next_action
from agentgym_envs.babyai.scene import Scene, describe
from agentgym_envs.babyai.scoring import START, OwnScoring, Scoring, Verdict
from agentgym_envs.babyai.view import View, object_name
from agentgym_envs.babyai.world import World, make_world
from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.protocol import ErrorKind

NO_CHANGE = "No change in state."
NOT_RECOGNIZED = "The action is not recognized. Please check valid actions."


class BabyAIEnvironment(Environment):
    """A minigrid level told in text, with actions of several primitive moves.

    An action stops at the first of its moves after which the view looks the same. The episode's
    limit is counted in primitive moves.

    Args:
      scoring: `OwnScoring()`, or `CompatScoring()` to behave as AgentGym's server.
    """

    def __init__(self, scoring: Scoring | None = None):
        self._scoring = OwnScoring() if scoring is None else scoring
        self._task: levels.Task | None = None
        self._world: World | None = None
        self._view: View | None = None
        self._scene: Scene | None = None
        self._verdict = START
        self._goal = ""
        self._text = ""

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
        self._task = levels.task(data_idx)
        self._world, self._view = make_world(self._task)
        self._goal = goal_text(self._world.mission)
        self._verdict = START
        self._describe()
        self._text = self._scene.description
        return self.observe()

    def step(self, action: str) -> StepResult:
        """Applies one action, whose case and surrounding space do not matter.

        An action that is not on offer changes nothing and is answered with the reason.

        Raises:
          EnvironmentFault: NOT_RESET before the first reset, FINISHED after the end.
        """
        self._check_playing()
        action = action.lower().strip()
        moves = () if "check" in action else self._scene.actions.get(action, ())
        if moves:
            self._move(moves)
        else:
            self._text = self._answer_without_moves(action)
            self._verdict = self._scoring.after_nothing(self._verdict)
        return self._result(f"{self._text}{self._action_list()}")

    def observe(self) -> StepResult:
        """What was said last, after the goal."""
        return self._result(f"Your goal: {self._goal}\n{self._text}{self._action_list()}")

    def expert_action(self) -> str:
        """The next action of a scripted player that knows the whole grid."""
        self._check_playing()
        return next_action(
            self._world,
            self._scene.actions,
            stops_at_success=self._scoring.ends_action(terminated=True, truncated=False),
        )

    def valid_actions(self) -> list[str]:
        """The actions on offer that move something."""
        self._check_playing()
        return [action for action, moves in self._scene.actions.items() if moves]

    def state(self) -> dict[str, Any]:
        """Task, goal, position and moves; position counts cells from the top left."""
        if self._world is None:
            return {}
        carrying = self._world.carrying
        return {
            "data_idx": self._task.data_idx,
            "level": self._task.level,
            "goal": self._world.mission,
            "moves": self._world.step_count,
            "max_moves": self._world.max_steps,
            "position": [int(c) for c in self._world.agent_pos],
            "facing": ("right", "down", "left", "up")[self._world.agent_dir],
            "carrying": None if carrying is None else object_name(carrying),
            "grid": str(self._world).split("\n"),
        }

    def render(self) -> str:
        """The whole grid as a PNG data URI."""
        if self._world is None:
            raise _not_reset()
        return render.png_data_uri(self._world)

    def _move(self, moves: tuple[int, ...]) -> None:
        """Walks through the primitive moves of one action."""
        for move in moves:
            view, reward, terminated, truncated, _ = self._world.step(move)
            looks_same, self._view = view == self._view, view
            if looks_same or self._scoring.ends_action(terminated, truncated):
                break
        self._verdict = self._scoring.after_moves(self._verdict, reward, terminated, truncated)
        self._describe()
        self._text = self._scene.description + self._verdict.note

    def _answer_without_moves(self, action: str) -> str:
        if "check" in action:
            return f"You can take the following actions: {', '.join(self._scene.actions)}"
        if action == "" or action in self._scene.actions:
            return NO_CHANGE
        if action in self._scene.refusals:
            return self._scoring.refusal(
                self._scene.refusals[action], self._scene.compat_refusals.get(action)
            )
        return NOT_RECOGNIZED

    def _describe(self) -> None:
        carrying = self._world.carrying
        self._scene = describe(
            self._view,
            self._world.agent_dir,
            None if carrying is None else object_name(carrying),
        )

    def _action_list(self) -> str:
        quoted = ", ".join(f'"{action}"' for action in self._scene.actions)
        return f"\nAvailable actions: [{quoted}]"

    def _result(self, observation: str) -> StepResult:
        v: Verdict = self._verdict
        return StepResult(observation, v.reward, v.score, v.done)

    def _check_playing(self) -> None:
        if self._world is None:
            raise _not_reset()
        if self._verdict.done:
            raise EnvironmentFault(
                ErrorKind.FINISHED, "this episode is over; reset to start another one"
            )


def goal_text(mission: str) -> str:
    """A mission as AgentGym tells it: `then` and `after you` become `and`, losing the order."""
    return mission.replace("then", "and").replace("after you", "and")


def _not_reset() -> EnvironmentFault:
    return EnvironmentFault(
        ErrorKind.NOT_RESET, "this environment was never reset; reset it with a data_idx first"
    )
