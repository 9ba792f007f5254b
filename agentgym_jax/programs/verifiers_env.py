r"""Agent program that plays environments of the `verifiers` package (Environments Hub).

  program.command="/venv/bin/python -m agentgym_jax.programs.verifiers_env --env=gsm8k-v1"

The interpreter needs `verifiers` 0.4 or newer, the package of the environment and this package, but
not JAX. Task number `data_idx` is the example at this position in the environment's taskset. The
program plays one rollout of it, which samples from the policy, and prints its reward. All agents
run in processes of this machine, unless `--config` selects another runtime.
"""

import argparse
import asyncio
import json
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import verifiers.v1 as vf

from agentgym_jax.programs.task import AgentTask

_COMMON_HARNESS = "bash"  # verifiers' harness for a taskset without one of its own


class RolloutFailed(Exception):
    """The rollout failed, or its reward cannot be used for training."""


def make_config(
    env: str, max_turns: int, *, harness: str, changes: Mapping[str, Any]
) -> vf.EnvConfig:
    """Returns the config of an environment.

    Args:
      env: Name of the taskset's package, such as `gsm8k-v1` or `owner/gsm8k-v1`.
      max_turns: Maximum number of chat requests of each agent.
      harness: Harness of agents for which neither the environment nor `changes` names one.
      changes: Sections in verifiers' format (`taskset`, `agent`, ...); their entries take
        precedence.
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


async def play(env: vf.Env, task: AgentTask) -> float:
    """Plays the example of a task; returns its reward.

    Raises:
      RolloutFailed: There is no such example, or `read_reward` failed.
    """
    examples = list(env.taskset.include(idx=[task.data_idx]))
    if not examples:
        raise RolloutFailed(
            f"{env.config.env_id} has no example {task.data_idx}; lower `stop` in "
            f"config.environments.{task.environment}"
        )
    client = vf.EvalClientConfig(base_url=task.base_url, api_key_var="OPENAI_API_KEY")
    async with env.serving():
        episode = await env.run_episode(examples[0], vf.ModelContext(task.model, client))
    return read_reward(episode, task.base_url)


def read_reward(episode: vf.Episode, base_url: str) -> float:
    """Returns the reward of the agent that sampled from the policy.

    Args:
      episode: Finished rollout.
      base_url: Address of the policy.

    Raises:
      RolloutFailed: The rollout failed, or not exactly one trained agent used the policy.
    """
    if not episode.ok:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        found = "; ".join(f"{error.type}: {error.message}" for error in errors)
        raise RolloutFailed(f"the rollout of {episode.env.id} failed: {found or 'no message'}")
    users = [t.agent for t in episode.traces if t.agent.config.client.base_url == base_url]
    if fixed := [agent.name for agent in users if not agent.trainable]:
        raise RolloutFailed(
            f"{episode.env.id}: agent {fixed[0]!r} is not trained, but sampled from the policy; "
            f'give it another model: --config=\'{{"{fixed[0]}": {{"model": ..., "client": ...}}}}\''
        )
    if len(users) != 1:
        names = ", ".join(agent.name for agent in users) or "none"
        raise RolloutFailed(
            f"{episode.env.id}: {len(users)} agents sampled from the policy ({names}), expected 1: "
            "the reward of an episode belongs to one agent"
        )
    return next(float(trace.reward) for trace in episode.traces if trace.agent is users[0])


def main() -> None:
    """Plays the task in the environment variables; prints the result as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--env", required=True, help="package of the taskset, such as gsm8k-v1")
    parser.add_argument(
        "--harness",
        default="null",
        help="harness for environments without one; `null` is verifiers' chat loop with tools",
    )
    parser.add_argument("--config", default="{}", help="environment config as JSON, or a JSON file")
    arguments = parser.parse_args()
    text = arguments.config
    changes = json.loads(text if text.startswith("{") else pathlib.Path(text).read_text())
    task = AgentTask.from_environ()
    config = make_config(
        arguments.env, task.max_turns, harness=arguments.harness, changes=changes
    )
    try:
        reward = asyncio.run(play(vf.load_environment(config), task))
    except RolloutFailed as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps({"reward": reward, "success": reward >= 1}) + "\n")


if __name__ == "__main__":
    main()
