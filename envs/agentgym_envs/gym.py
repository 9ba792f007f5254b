"""The environments for gymnasium: `gymnasium.make("agentgym/TextCraft-v0")`.

Actions and observations are text. The environment runs in the calling process. gym_names.py
registers the names.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium

from agentgym_envs.base.environment import EnvironmentFault, check_task
from agentgym_envs.base.protocol import ErrorKind, is_solved
from agentgym_envs.base.served import load_environment, prepare
from agentgym_envs.base.user_code import play
from agentgym_envs.registry import ENVIRONMENTS


class AnyText(gymnasium.Space[str]):
    """Space of all texts. gymnasium's own `Text` requires a list of the allowed characters."""

    def __init__(self) -> None:
        super().__init__(shape=None, dtype=None)

    def sample(self, mask: Any = None) -> str:
        """Returns an empty text; `TextEnv.world.valid_actions()` returns sensible actions."""
        return ""

    def contains(self, x: Any) -> bool:
        """Returns True if `x` is a text."""
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)


class TextEnv(gymnasium.Env[str, str]):
    """One environment as a `gymnasium.Env`.

    `reset` starts the task in `options={"data_idx": 5}`, or else a random task of the split.
    Rewards are divided by the environment's best score. `info` has the undivided `score`,
    `data_idx`, `success` and the `instructions` for an agent.

    Args:
      environment: Name of the environment, as for `python -m agentgym_envs NAME`.
      split: Split from which `reset` draws tasks: `train`, `test`, or another split of the
          manifest.
      max_turns: Number of actions after which an episode is truncated; None selects AgentGym's
          limit.
      compat: True for AgentGym's behaviour, oddities included.
      render_mode: None or `ansi`. With `ansi`, `render` returns the last observation.
      settings: Options of the environment, as for `--option`.

    Raises:
      SetupError: The environment cannot run on this machine.
      ValueError: The split has no tasks.
    """

    metadata = {"render_modes": ["ansi"]}

    def __init__(
        self,
        environment: str,
        *,
        split: str = "train",
        max_turns: int | None = None,
        compat: bool = False,
        render_mode: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ):
        served = load_environment(ENVIRONMENTS[environment].module, settings)
        prepare(served)
        self.render_mode = render_mode
        self.instructions = served.spec.text_instructions
        self.world = (served.compat_factory if compat else served.factory)()
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._spec = served.spec
        self._max_turns = served.spec.max_turns if max_turns is None else max_turns
        self._tasks = [task["data_idx"] for task in served.tasks() if task["split"] == split]
        if not self._tasks:
            raise ValueError(f"{environment} has no tasks of split {split!r}")
        self._serves_after_end = compat
        self._turns = 0
        self._is_over = False
        self._data_idx = -1
        self._text = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts a task; raises EnvironmentFault if it does not exist."""
        super().reset(seed=seed)
        if options and "data_idx" in options:
            self._data_idx = int(options["data_idx"])
        else:
            self._data_idx = self._tasks[int(self.np_random.integers(len(self._tasks)))]
        check_task(self._spec.name, self._data_idx, self._spec.num_tasks)
        self._turns, self._is_over = 0, False
        result = play(self.world.reset, self._data_idx)
        self._text = result.text
        return result.text, self._info(result.score, False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Executes one action; returns observation, reward, terminated, truncated and info.

        Raises:
          EnvironmentFault: FINISHED after the end of the episode, unless `compat` is set.
        """
        if self._is_over and not self._serves_after_end:
            raise EnvironmentFault(
                ErrorKind.FINISHED,
                f"{self._spec.name}: this episode is over; reset to start another one",
            )
        result = play(self.world.step, action)
        self._turns += 1
        self._is_over = result.done
        self._text = result.text
        success = result.done and is_solved(result.score, self._spec.success_score)
        is_cut = not result.done and self._turns >= self._max_turns
        reward = result.reward / self._spec.max_score
        return result.text, reward, result.done, is_cut, self._info(result.score, success)

    def render(self) -> str | None:  # type: ignore[override]
        """Returns the last observation in mode `ansi`, otherwise None."""
        return self._text if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Releases the simulator."""
        self.world.close()

    def _info(self, score: float, success: bool) -> dict[str, Any]:
        return {
            "data_idx": self._data_idx,
            "score": score,
            "success": success,
            "instructions": self.instructions,
        }
