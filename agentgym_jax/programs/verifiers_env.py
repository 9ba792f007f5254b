r"""Agent program that plays environments of the `verifiers` package (Environments Hub).

As a command, in an interpreter with `verifiers` 0.4 or newer, the package of the environment and
this package, but without JAX. Each episode starts a process, which imports verifiers (seconds):

  program.command="/venv/bin/python -m agentgym_jax.programs.verifiers_env --env=gsm8k-v1"

As a function, if the same packages are installed next to JAX. All episodes share an event loop:

  # my_env.py, for program.function="my_env:play"
  from agentgym_jax.programs.verifiers_env import Player
  play = Player("gsm8k-v1")

Task number `data_idx` is the example at this position in the environment's taskset. One rollout of
it samples from the policy, and its reward is the result. All agents run in processes of this
machine, unless `config` selects another runtime.
"""

import argparse
import asyncio
import contextlib
import json
import pathlib
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import verifiers.v1 as vf

from agentgym_envs.base.protocol import is_solved
from agentgym_jax.programs.task import AgentTask

_COMMON_HARNESS = "bash"  # verifiers' harness for a taskset that has none
_KEY_VARIABLE = "AGENTGYM_API_KEY"  # may be unset, because the endpoint needs no key


class RolloutFailed(Exception):
    """The rollout failed, or its reward cannot be used for training."""


class Player:
    """Function that plays episodes of an environment; many threads may call it.

    Args:
      env: Name of the taskset's package, such as `gsm8k-v1` or `owner/gsm8k-v1`.
      harness: Harness of agents for which neither the environment nor `config` names one. `null` is
        verifiers' chat loop with tools. It needs `uv`, which downloads its packages at first use.
      config: Sections in verifiers' format (`taskset`, `agent`, ...); their entries take
        precedence.
    """

    def __init__(self, env: str, *, harness: str = "null", config: Mapping[str, Any] | None = None):
        self._env = env
        self._harness = harness
        self._config = dict(config or {})
        self._loop = asyncio.new_event_loop()
        self._lock = asyncio.Lock()
        self._stack = contextlib.AsyncExitStack()
        self._opened: dict[int, _Examples] = {}  # by turn limit
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="verifiers", daemon=True
        )
        self._thread.start()

    def __call__(self, task: AgentTask) -> dict[str, Any]:
        """Plays the example of a task; returns `reward` and `success` (a reward of 1 or more).

        Raises:
          RolloutFailed: There is no such example, or `read_reward` failed.
        """
        playing = asyncio.run_coroutine_threadsafe(self._play(task), self._loop)
        reward = playing.result()
        return {"reward": reward, "success": is_solved(reward)}

    def close(self) -> None:
        """Closes the environment and ends the event loop."""
        asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _play(self, task: AgentTask) -> float:
        async with self._lock:
            if task.max_turns not in self._opened:
                self._opened[task.max_turns] = await self._open(task.max_turns)
            examples = self._opened[task.max_turns]
        example = examples.find(task.data_idx)
        client = vf.EvalClientConfig(base_url=task.base_url, api_key_var=_KEY_VARIABLE)
        context = vf.ModelContext(task.model, client)
        return read_reward(await examples.env.run_episode(example, context), task.base_url)

    async def _open(self, max_turns: int) -> "_Examples":
        config = make_config(self._env, max_turns, harness=self._harness, changes=self._config)
        env = vf.load_environment(config)
        await self._stack.enter_async_context(env.serving())
        return _Examples(env)


class _Examples:
    """Examples of an environment, loaded up to the largest index so far."""

    def __init__(self, env: vf.Env):
        self.env = env
        self._loaded: list[vf.Task] = []
        self._rest: Iterator[vf.Task] = iter(env.taskset)

    def find(self, index: int) -> vf.Task:
        """Returns an example; raises RolloutFailed if there is none at this index."""
        while len(self._loaded) <= index:
            try:
                self._loaded.append(next(self._rest))
            except StopIteration:
                raise RolloutFailed(
                    f"{self.env.config.env_id} has examples 0 .. {len(self._loaded) - 1}, the task "
                    f"is {index}; lower `stop` of the tasks in config.environments"
                ) from None
        return self._loaded[index]


def make_config(
    env: str, max_turns: int, *, harness: str, changes: Mapping[str, Any]
) -> vf.EnvConfig:
    """Returns the config of an environment.

    Args:
      env: Name of the taskset's package.
      max_turns: Maximum number of chat requests of each agent.
      harness: Harness of agents without one.
      changes: Sections in verifiers' format; their entries take precedence.
    """
    config: dict[str, Any] = {"taskset": {"id": env}}
    has_harness = vf.default_harness_id(env) != _COMMON_HARNESS
    for name, field in vf.env_config_type(env, changes.get("id", "")).model_fields.items():
        if isinstance(field.default, vf.AgentConfig):
            config[name] = {"runtime": {"type": "subprocess"}, "max_turns": max_turns}
            if field.default.harness is None and not has_harness:
                config[name]["harness"] = {"id": harness}
    for name, value in changes.items():
        is_section = isinstance(value, Mapping) and name in config
        config[name] = {**config[name], **value} if is_section else value
    return vf.resolve_env_config(config)


def read_reward(episode: vf.Episode, base_url: str) -> float:
    """Returns the reward of the agent that sampled from the policy.

    Args:
      episode: Finished rollout.
      base_url: Address of the policy.

    Raises:
      RolloutFailed: The rollout failed, or not exactly one trained agent used the policy.
    """
    name = episode.env.id
    if not episode.ok:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        found = "; ".join(f"{error.type}: {error.message}" for error in errors)
        raise RolloutFailed(f"the rollout of {name} failed: {found or 'no message'}")
    users = [t for t in episode.traces if t.agent.config.client.base_url == base_url]
    if fixed := [trace.agent.name for trace in users if not trace.agent.trainable]:
        raise RolloutFailed(
            f"{name}: agent {fixed[0]!r} is not trained, but sampled from the policy. Give it "
            f'another model: --config=\'{{"{fixed[0]}": {{"model": ..., "client": ...}}}}\''
        )
    if len(users) != 1:
        names = ", ".join(trace.agent.name for trace in users) or "none"
        raise RolloutFailed(
            f"{name}: {len(users)} agents sampled from the policy ({names}), expected 1, to which "
            "the reward belongs"
        )
    return float(users[0].reward)


def main() -> None:
    """Plays the task in the environment variables; prints the result as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--env", required=True, help="package of the taskset, such as gsm8k-v1")
    parser.add_argument("--harness", default="null", help="harness of agents without one")
    parser.add_argument("--config", default="{}", help="changed sections as JSON, or a JSON file")
    given = parser.parse_args()
    is_json = given.config.lstrip().startswith("{")
    config = json.loads(
        given.config if is_json else pathlib.Path(given.config).read_text("utf-8-sig")
    )
    player = Player(given.env, harness=given.harness, config=config)
    try:
        result = player(AgentTask.from_environ())
    except RolloutFailed as error:
        sys.exit(str(error))
    finally:
        player.close()
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
