"""The environments for gymnasium: `gymnasium.make("agentgym/TextCraft-v0")`.

Actions and observations are text; the world runs in the calling process. The names are
registered by gym_names.py.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium

from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.kind import load_kind
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.kinds import KINDS


class AnyText(gymnasium.Space[str]):
    """All texts. gymnasium's own `Text` wants a list of the characters that may occur."""

    def __init__(self) -> None:
        super().__init__(shape=None, dtype=None)

    def sample(self, mask: Any = None) -> str:
        """An empty text: what makes sense, `TextEnv.valid_actions` knows."""
        return ""

    def contains(self, x: Any) -> bool:
        """Whether it is a text."""
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText)


class TextEnv(gymnasium.Env[str, str]):
    """One environment as a `gymnasium.Env`.

    `reset` takes the task from `options={"data_idx": 5}`, else draws one of the split. Rewards are
    in units of a perfect episode; `info` has the environment's own `score`, `data_idx`, `success`
    and the `instructions` for an agent.

    Args:
      environment: name, as for `python -m agentgym_envs NAME`.
      split: tasks that `reset` draws from: `train`, `test`, or another of the manifest.
      max_turns: actions after which an episode is truncated; None takes AgentGym's limit.
      compat: AgentGym's behaviour, oddities included.
      render_mode: None or `ansi`, for which `render` is the last observation.
      settings: options of the environment, as of `--option`.

    Raises:
      SetupError: the environment cannot run on this machine.
      ValueError: there are no tasks of this split.
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
        kind = load_kind(KINDS[environment].module, settings)
        kind.prepare()
        self.render_mode = render_mode
        self.instructions = kind.spec.instructions
        self.world = (kind.compat_factory if compat else kind.factory)()
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._spec = kind.spec
        self._max_turns = kind.spec.max_turns if max_turns is None else max_turns
        self._tasks = [task["data_idx"] for task in kind.tasks() if task["split"] == split]
        if not self._tasks:
            raise ValueError(f"{environment} has no tasks of split {split!r}")
        self._turns = 0
        self._data_idx = -1
        self._text = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Starts a task.

        Raises:
          EnvironmentFault: there is no such task.
        """
        super().reset(seed=seed)
        if options and "data_idx" in options:
            self._data_idx = int(options["data_idx"])
        else:
            self._data_idx = self._tasks[int(self.np_random.integers(len(self._tasks)))]
        if not 0 <= self._data_idx < self._spec.num_tasks:
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK,
                f"{self._spec.name} has tasks 0 .. {self._spec.num_tasks - 1}, data_idx was "
                f"{self._data_idx}",
            )
        self._turns = 0
        result = self.world.reset(self._data_idx)
        self._text = result.observation
        return result.observation, self._info(result.score, False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes one action: observation, reward, terminated, truncated, info."""
        result = self.world.step(action)
        self._turns += 1
        self._text = result.observation
        success = result.done and result.score >= self._spec.success_score
        is_cut = not result.done and self._turns >= self._max_turns
        reward = result.reward / self._spec.max_score
        return result.observation, reward, result.done, is_cut, self._info(result.score, success)

    def render(self) -> str | None:  # type: ignore[override]
        """The last observation, in mode `ansi`."""
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
