"""Sections `env_server`, `environments`, `client` and `pool`, checked before a server starts."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from agentgym_jax.checks.limits import OneOf, Range
from agentgym_jax.client.actions import ActionFormat
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.in_process import SHIPPED
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.config.sections import ConfigError, call, check, kind_of
from agentgym_jax.data import tasks as selection

_OWN_TASKS = ("residues", "file", "items")  # selections that need no manifest of a server

Turns = Annotated[int, Range(0, unit="turns")]


@dataclasses.dataclass(frozen=True)
class TransportSettings:
    """Section `env_server`: options of the servers that this run starts.

    Attributes:
      transport: `http` starts one server per environment; a simulator that hangs costs one episode.
        `inprocess` runs the environments in the training process.
      workers: Worker processes of each server; no effect with `inprocess`.
    """

    transport: Literal["http", "inprocess"]
    workers: Annotated[int, Range(1)]


@dataclasses.dataclass(frozen=True)
class EnvironmentSettings:
    """One entry of the section `environments`.

    Attributes:
      url: Address of a running server; if empty, this run starts a server.
      protocol: Protocol of the server: AgentGym's if empty, or `openenv` for a server at `url`.
        `none` starts and contacts no server: the agent program has its own tasks.
      module: Python module of the environment to start, with a function
          `make_served_environment()`; empty selects the shipped module.
      options: Options of the environment to start, as for the server's flag `--option`.
      train: Training tasks: `kind` and the arguments of data/tasks.py; empty for none.
      eval: Held-out tasks, in the same form as `train`.
      weight: Weight in the mixture of training tasks; an environment with 0 is only evaluated.
      weights: Draws per cycle of training tasks, by task group; by default the size of the group.
      horizon: Horizon of this environment; if empty, the section `horizon` applies.
      eval_max_turns: Turn limit of a held-out episode; 0 selects `evaluation.max_turns`.
      instructions: First message to the agent; if empty, the server's instructions.
      action_format: Format of the model's actions; if empty, the default of the environment.
      success_score: Score with which an episode is solved, in the unit of the server; 0 selects the
          server's own rule. OpenEnv's servers without `success` have 1.
    """

    url: str
    protocol: Annotated[str, OneOf(("", "openenv", "none"))]
    module: str
    options: Mapping[str, Any]
    train: Mapping[str, Any]
    eval: Mapping[str, Any]
    weight: Annotated[int, Range(0)]
    weights: Mapping[str, Annotated[int, Range(0)]]
    horizon: Mapping[str, Any]
    eval_max_turns: Turns
    instructions: str
    action_format: Annotated[str, OneOf(("", *ActionFormat))]
    success_score: Annotated[float, Range(0)] = 0.0

    def __post_init__(self) -> None:
        if self.url and self.module:
            raise ValueError(
                f"url={self.url!r} and module={self.module!r}: give only one of them, the "
                "address of a running server or an environment to start"
            )
        if self.protocol == "openenv" and not self.url:
            raise ValueError(
                f"protocol={self.protocol!r} without url: give the address of a running server, or "
                "protocol='' to start one"
            )
        if self.url and self.options:
            raise ValueError(
                f"url={self.url!r} and options={dict(self.options)}: a running server has its "
                "own. Give them on its command line, --option NAME=VALUE"
            )
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url={self.url!r} is no address such as http://127.0.0.1:36001")
        if self.protocol == "none":
            self._check_own_tasks()

    def _check_own_tasks(self) -> None:
        """Checks an environment without a server."""
        for name in ("url", "module", "options", "action_format"):
            if value := getattr(self, name):
                raise ValueError(
                    f"protocol='none' and {name}={value!r}: without a server, {name} has no "
                    f"effect. Remove one of them"
                )
        for name in ("train", "eval"):
            kind = dict(getattr(self, name)).get("kind", _OWN_TASKS[0])
            if kind not in _OWN_TASKS:
                raise ValueError(
                    f"protocol='none' and {name} of kind {kind!r}: there is no server with a task "
                    f"manifest. Use {' or '.join(_OWN_TASKS)}"
                )


def parse_settings(section: Mapping[str, Any]) -> dict[str, EnvironmentSettings]:
    """Parses the section `environments` and checks it before any server starts."""
    if not section:
        raise ConfigError("config.environments is empty; name at least one environment")
    settings = {}
    for name, options in section.items():
        if "/" in name or not name:  # names of metrics contain it
            raise ConfigError(f"config.environments: the name {name!r} is empty or has a slash")
        settings[name] = call(EnvironmentSettings, f"environments.{name}", options)
        for use in ("train", "eval"):
            if use == "eval" or options[use]:
                check_tasks(f"environments.{name}.{use}", options[use])
    return settings


def check_trained(settings: Mapping[str, EnvironmentSettings]) -> None:
    """Checks that a weight is positive, and that environments with a weight have training tasks."""
    for name, entry in settings.items():
        if entry.weight and not entry.train:
            raise ConfigError(
                f"config.environments.{name} has no train tasks; with weight=0 it is only evaluated"
            )
    if not any(entry.weight for entry in settings.values()):
        raise ConfigError("config.environments: every weight is 0, so there is nothing to train on")


def check_tasks(name: str, options: Any) -> None:
    """Checks the keys of a section that selects tasks; the server checks later that they exist."""
    kind_of(name, options, selection.SELECTIONS, environment="", manifest=())


def check_playable(
    settings: Mapping[str, EnvironmentSettings],
    client: Mapping[str, Any],
    pool: Mapping[str, Any],
    system_prompt_mode: str,
) -> None:
    """Checks the inputs of `open_environments` before any server starts."""
    bound = dict(base_url="", environment="", action_format=None, success_score=0.0)
    bound |= dict(transport=None, facts=None)
    check(EnvClient, "client", client, **bound)
    check(EnvPool, "pool", pool, clients={})
    for name, entry in settings.items():
        if entry.instructions and system_prompt_mode != "system":
            raise ConfigError(
                f"config.environments.{name}.instructions would not be shown: "
                f"config.rollout.system_prompt_mode is {system_prompt_mode!r}"
            )
        starts_server = not entry.url and entry.protocol != "none"
        if starts_server and not entry.module and name not in SHIPPED:
            nearest = difflib.get_close_matches(name, SHIPPED, n=1)
            raise ConfigError(
                f"config.environments.{name}: there is no such environment"
                + (f"; did you mean {nearest[0]!r}?" if nearest else ".")
                + f" Known: {', '.join(SHIPPED)}. For another one give its module or its url"
            )
