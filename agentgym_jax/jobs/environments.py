"""Environments of a run: servers, clients, pool of sessions, and tasks."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from absl import logging

from agentgym_envs.base.protocol import with_tools
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.embedded import EmbeddedServers
from agentgym_jax.client.failures import spec_when_ready
from agentgym_jax.client.in_process import in_process_servers
from agentgym_jax.client.no_server import NoServerTransport
from agentgym_jax.client.openenv import OpenEnvClient
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.client.transport import Transport
from agentgym_jax.config.agent import AgentSettings
from agentgym_jax.config.environment_sections import EnvironmentSettings
from agentgym_jax.config.sections import ConfigError, call, config_errors
from agentgym_jax.data import tasks as selection
from agentgym_jax.data.tasks import MixtureSchedule, Task, TaskSchedule
from agentgym_jax.rollout.interface import EnvironmentText
from agentgym_jax.runs.run_folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Environments:
    """Environments of a run: their clients, texts and tasks.

    Attributes:
      texts: Preamble and action parser, by environment.
      manifests: Hash of the task manifest, by environment.
      started: Module and options of the servers that the run starts, by environment.
    """

    clients: Mapping[str, EnvClient]
    pool: EnvPool
    texts: Mapping[str, EnvironmentText]
    train_tasks: Sequence[Task]
    eval_tasks: Sequence[Task]
    manifests: Mapping[str, str]
    started: Mapping[str, Mapping[str, Any]]
    restart_dead_servers: Callable[[], None]


def make_schedule(
    settings: Mapping[str, EnvironmentSettings], tasks: Sequence[Task], *, seed: int
) -> MixtureSchedule:
    """Returns the order of the training tasks, given the checked section `environments`."""
    weights = {name: entry.weight for name, entry in settings.items()}
    schedules = {
        name: call(
            TaskSchedule,
            f"environments.{name}",
            {"weights": entry.weights},
            tasks=[task for task in tasks if task.environment == name],
            seed=seed,
        )
        for name, entry in settings.items()
        if entry.weight
    }
    return MixtureSchedule(schedules, weights)


def open_environments(
    stack: contextlib.ExitStack,
    agent: AgentSettings,
    folder: RunFolder,
    client_class: type[EnvClient] = EnvClient,
    *,
    tools_as_text: bool = False,
) -> Environments:
    """Starts servers for environments without a URL, connects to all, and selects the tasks.

    An environment with `protocol="none"` has no server, only a stub (client/no_server.py).
    `stack` closes all opened resources, also after an error. Scripted agents need a `client_class`
    that sends additional requests. With `tools_as_text`, tools are a part of the instructions and
    calls are texts, for agents that do not use the chat template of a model. Agent programs are such
    agents.
    """
    settings = agent.environments
    without = [name for name, entry in settings.items() if entry.protocol == "none"]
    embedded = [n for n, entry in settings.items() if not entry.url and n not in without]
    modules = {name: settings[name].module for name in embedded if settings[name].module}
    options = {name: settings[name].options for name in embedded if settings[name].options}
    in_process = embedded if agent.env_server.transport == "inprocess" else []
    own_log = folder.process_logs / "inprocess.log"
    with config_errors("config.env_server.transport='inprocess': "):
        opened = stack.enter_context(in_process_servers(in_process, modules, options, own_log))
    transports: dict[str, Transport] = {**opened, **{n: NoServerTransport(n) for n in without}}
    servers = stack.enter_context(
        EmbeddedServers(
            [name for name in embedded if name not in transports],
            modules=modules,
            options=options,
            log_folder=folder.process_logs,
            arguments=[f"--workers={agent.env_server.workers}"],
        )
    )
    urls = {name: entry.url or f"inprocess://{name}" for name, entry in settings.items()}
    urls |= {name: f"none://{name}" for name in without}
    urls |= servers.urls
    clients: dict[str, EnvClient] = {}
    for name, entry in settings.items():
        bound = dict(
            base_url=urls[name],
            environment=name,
            action_format=entry.action_format or None,
            success_score=entry.success_score,
        )
        if entry.protocol == "openenv":
            if client_class is not EnvClient:
                raise ConfigError(
                    f"config.environments.{name}.protocol='openenv': scripted agents need a server "
                    "of agentgym_envs in AgentGym's protocol"
                )
            clients[name] = call(OpenEnvClient, "client", agent.client, **bound)
        else:
            transport = transports.get(name)
            clients[name] = call(client_class, "client", agent.client, transport=transport, **bound)
        if name in embedded:
            clients[name].log = str(servers.logs.get(name, own_log))
        stack.callback(clients[name].disconnect)
    pool = call(EnvPool, "pool", agent.pool, clients=clients)
    stack.callback(pool.close)

    def restart_dead_servers() -> None:
        """Restarts dead servers that this run started, and drops the sessions lost with them."""
        for name in servers.ensure_alive():
            pool.invalidate(name)

    as_text = tools_as_text or agent.program is not None
    started = {
        name: {"module": settings[name].module, "options": settings[name].options}
        for name in embedded
    }
    return _describe(agent, clients, pool, started, restart_dead_servers, as_text)


def _describe(
    agent: AgentSettings,
    clients: Mapping[str, EnvClient],
    pool: EnvPool,
    started: Mapping[str, Mapping[str, Any]],
    restart_dead_servers: Callable[[], None],
    tools_as_text: bool,
) -> Environments:
    texts, manifests = {}, {}
    train_tasks: list[Task] = []
    eval_tasks: list[Task] = []
    for name, entry in agent.environments.items():
        client = clients[name]
        spec = spec_when_ready(client, pool.patience_s)
        manifests[name] = spec.manifest_sha256
        logging.info(
            "%s at %s: %d tasks, version %s", name, client.base_url, spec.num_tasks, spec.version
        )
        if tools_as_text:
            client.read_tools_as_text()
        shown_tools = client.facts.shown_tools
        instructions = entry.instructions or spec.instructions
        if not shown_tools:
            instructions = with_tools(instructions, client.facts.tools)
        preamble: tuple[Mapping[str, str], ...] = ()
        # in mode `data`, `match_prompts` sets the preambles later
        if agent.rollout.system_prompt_mode != "none":
            preamble = ({"role": "system", "content": instructions},)
        texts[name] = EnvironmentText(preamble, client.parse, tools=shown_tools)
        manifest = functools.lru_cache(client.tasks)
        train_tasks += _select(f"environments.{name}.train", name, entry.train, manifest)
        eval_tasks += _select(f"environments.{name}.eval", name, entry.eval, manifest)
    check_disjoint(eval_tasks, (task.item_id for task in train_tasks), "the training tasks")
    return Environments(
        clients=clients,
        pool=pool,
        texts=texts,
        train_tasks=train_tasks,
        eval_tasks=eval_tasks,
        manifests=manifests,
        started=started,
        restart_dead_servers=restart_dead_servers,
    )


def _select(
    path: str,
    environment: str,
    options: Mapping[str, Any],
    fetch_manifest: Callable[[], Sequence[Mapping[str, Any]]],
) -> list[Task]:
    if not options:
        return []
    manifest = fetch_manifest() if options["kind"] in ("split", "suite") else ()
    return call(selection.select, path, options, environment=environment, manifest=manifest)


def check_no_tools(environments: Environments) -> None:
    """Raises ConfigError if a chat template would write the tools of an environment."""
    for name, text in environments.texts.items():
        if text.tools:
            raise ConfigError(
                f"config.environments.{name} has tools, which conversations to learn from do not "
                f"have; set config.environments.{name}.action_format='raw' to describe them in the "
                "system prompt"
            )


def check_disjoint(eval_tasks: Sequence[Task], item_ids: Iterable[str], place: str) -> None:
    """Raises ConfigError if a held-out task is among `item_ids`, which `place` describes."""
    shared = sorted({task.item_id for task in eval_tasks}.intersection(item_ids))
    if shared:
        raise ConfigError(
            f"{len(shared)} held-out tasks are also in {place}, such as {shared[0]}; choose other "
            "tasks in config.environments.<name>.eval, or other data"
        )
