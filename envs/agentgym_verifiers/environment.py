"""Tasks and episodes of one environment for verifiers.

The environment runs in the calling process. The reward of an episode is its final score, divided
by the best possible score.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import verifiers.v1 as vf

from agentgym_envs import registry
from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.protocol import is_solved
from agentgym_envs.base.served import ServedEnvironment, prepare
from agentgym_envs.base.served import load_environment as load_served
from agentgym_envs.base.user_code import play
from agentgym_verifiers.actions import parse

PACKAGE = "agentgym-verifiers"  # id of this taskset in verifiers


class AgentGymData(vf.TaskData):
    """Task of an environment; `data_idx` is its index there."""

    data_idx: int


class AgentGymTask(vf.Task[AgentGymData]):
    """Task whose reward the environment sets."""


class AgentGymConfig(vf.TasksetConfig):
    """Options of the taskset.

    Attributes:
      environment: Name of an environment, such as `textcraft`, or a module that serves one.
      split: Split of the task manifest; empty for all tasks.
      settings: Options of the environment, as for the server's flag `--option`.
    """

    environment: str = "textcraft"
    split: str = "test"
    settings: dict[str, Any] = {}


class AgentGymTaskset(vf.Taskset[AgentGymTask, AgentGymConfig]):
    """Tasks in one split of an environment."""

    def load(self) -> Iterator[AgentGymTask]:
        """Yields the tasks in the order of the manifest.

        Raises:
          ValueError: The split has no tasks.
          SetupError: The environment cannot run on this machine.
        """
        name, split = self.config.environment, self.config.split
        served = _load(self.config)
        manifest = served.tasks()
        chosen = [task["data_idx"] for task in manifest if split in ("", task["split"])]
        if not chosen:
            found = ", ".join(sorted({task["split"] for task in manifest}))
            raise ValueError(f"{name} has no tasks of split {split!r}; its splits are {found}")
        for index in chosen:
            data = AgentGymData(
                name=f"{name}_{index}",
                data_idx=index,
                system_prompt=served.spec.text_instructions,
            )
            yield AgentGymTask(data, self.config.task)


class AgentGymEnvConfig(vf.EnvConfig):
    """Options of the environment.

    Attributes:
      agent: Agent that plays; by default with `ChatHarness`, in this process.
      max_parse_errors: Number of answers without an action after which the episode ends.
    """

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    max_parse_errors: int = 3


class AgentGymEnv(vf.Env[AgentGymEnvConfig]):
    """Plays episodes: the environment's observations are the messages of the user."""

    async def start(self) -> None:
        """Loads the environment."""
        self._served = await asyncio.to_thread(_load, self.config.taskset)

    async def run(self, task: AgentGymTask, agents: vf.Agents) -> None:
        """Plays one episode and records its reward and the metric `success`."""
        world = await asyncio.to_thread(self._served.factory)
        try:
            result = await asyncio.to_thread(play, world.reset, task.data.data_idx)
            async with agents.agent.interaction(task) as interaction:
                result = await self._play(world, result, interaction)
        finally:
            await asyncio.to_thread(world.close)
        spec = self._served.spec
        solved = result.done and is_solved(result.score, spec.success_score)
        interaction.trace.record_reward("score", result.score / spec.max_score)
        interaction.trace.record_metric("success", float(solved))

    async def _play(
        self, world: Environment, result: StepResult, interaction: vf.Interaction
    ) -> StepResult:
        """Returns the last result of an episode."""
        spec, errors, turns = self._served.spec, 0, 0
        message = result.text
        limit = self.config.agent.max_turns or spec.max_turns
        while not result.done and turns < limit and errors <= self.config.max_parse_errors:
            segment = await interaction.turn(message)
            if segment.terminated:
                break
            turns += 1
            parsed = parse(segment.last_reply, spec.action_format)
            if parsed.problem:
                errors += 1
                message = parsed.problem
                continue
            result = await asyncio.to_thread(play, world.step, parsed.action)
            message = result.text
        return result


def load_environment(
    environment: str = "textcraft",
    *,
    split: str = "test",
    settings: Mapping[str, Any] | None = None,
    **agent: Any,
) -> AgentGymEnv:
    """Returns an environment for verifiers.

    Args:
      environment: Name of an environment, or a module that serves one.
      split: Split of the task manifest; empty for all tasks.
      settings: Options of the environment.
      **agent: Options of the agent, such as `max_turns`.
    """
    taskset = AgentGymConfig(
        id=PACKAGE, environment=environment, split=split, settings=dict(settings or {})
    )
    config = AgentGymEnvConfig.model_validate({"taskset": taskset, "agent": agent})
    return AgentGymEnv(config)


def _load(config: AgentGymConfig) -> ServedEnvironment:
    served = load_served(registry.find(config.environment).module, config.settings)
    prepare(served)
    return served
