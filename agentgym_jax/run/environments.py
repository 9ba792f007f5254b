"""Servers, clients, pool and tasks from the sections environments, client and pool."""

import contextlib
import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from absl import logging

from agentgym_jax.data import tasks as selection
from agentgym_jax.data.tasks import Task
from agentgym_jax.env_client.actions import ActionFormat
from agentgym_jax.env_client.client import EnvClient
from agentgym_jax.env_client.embedded import EmbeddedServers
from agentgym_jax.env_client.in_process import SHIPPED, InProcessTransport, in_process_servers
from agentgym_jax.env_client.pool import EnvPool
from agentgym_jax.env_client.starting import spec_when_ready
from agentgym_jax.limits import OneOf, Range
from agentgym_jax.rollout.collect import EnvironmentText
from agentgym_jax.run.sections import ConfigError, call, check, kind_of
from agentgym_jax.run_folder import RunFolder

Turns = Annotated[int, Range(0, unit="turns")]


@dataclasses.dataclass(frozen=True)
class TransportSettings:
    """Section `env`: environments that the config gives no URL.

    Attributes:
      transport: `http` starts a server for each of them: a simulator that hangs or crashes costs
        one episode. `inprocess` runs them in the training process, with the same answers.
      workers: Worker processes of each server; without effect in process.
    """

    transport: Literal["http", "inprocess"]
    workers: Annotated[int, Range(1)]


@dataclasses.dataclass(frozen=True)
class EnvironmentSettings:
    """One entry of the section `environments`.

    Attributes:
      url: Address of a running server; empty starts one for this run.
      module: Module with `make_kind()` of the environment to start; empty takes the shipped one.
      options: Options of the environment to start, as with `--option`.
      train: Tasks to train on: `kind` and the arguments of data/tasks.py; may be empty where
        nothing is trained.
      eval: Held-out tasks, in the same form.
      weight: Share of its tasks among those of all environments; 0 only evaluates.
      weights: Group -> draws per cycle of training tasks; its number of tasks if not named.
      horizon: Horizon of this environment, as the section `horizon`; empty takes that section.
      eval_max_turns: Turn limit of a held-out episode; 0 takes `evaluation.max_turns`.
      instructions: First message to the agent; empty takes the server's own.
      action_format: Form of the model's actions; empty takes the environment's own.
    """

    url: str
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

    def __post_init__(self) -> None:
        if self.url and self.module:
            raise ValueError(
                f"url={self.url!r} and module={self.module!r}: give one of them, a server that "
                "runs or an environment to start"
            )
        if self.url and self.options:
            raise ValueError(
                f"url={self.url!r} and options={dict(self.options)}: a server that runs has its "
                "own. Give them on its command line, --option NAME=VALUE"
            )
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url={self.url!r} is no address such as http://127.0.0.1:36001")


@dataclasses.dataclass(frozen=True)
class Environments:
    """Everything about the environments of a run.

    Attributes:
      clients: by name.
      pool: talks to all of them.
      texts: preamble and action parser, by name.
      train_tasks: all tasks to train on.
      eval_tasks: all held-out tasks.
      manifests: environment -> hash of its task manifest.
      revive: starts embedded servers that died again.
    """

    clients: Mapping[str, EnvClient]
    pool: EnvPool
    texts: Mapping[str, EnvironmentText]
    train_tasks: Sequence[Task]
    eval_tasks: Sequence[Task]
    manifests: Mapping[str, str]
    revive: Callable[[], None]


def parse_settings(section: Mapping[str, Any]) -> dict[str, EnvironmentSettings]:
    """Checks the section before anything is started."""
    if not section:
        raise ConfigError("config.environments is empty; name at least one environment")
    settings = {}
    for name, options in section.items():
        if not isinstance(options, Mapping):
            raise ConfigError(f"config.environments.{name}={options!r}: expected a section")
        settings[name] = call(EnvironmentSettings, f"environments.{name}", options)
        for use in ("train", "eval"):
            if use == "eval" or options[use]:
                check_tasks(f"environments.{name}.{use}", options[use])
    return settings


def check_tasks(name: str, options: Any) -> None:
    """Checks a section that chooses tasks; only the server knows whether they exist."""
    kind_of(name, options, selection.SELECTIONS, environment="", manifest=())


def check_playable(
    settings: Mapping[str, EnvironmentSettings],
    client: Mapping[str, Any],
    pool: Mapping[str, Any],
    opening: str,
) -> None:
    """Checks, before anything is started, what opening the environments will need.

    Args:
      settings: The checked section environments.
      client: Section client.
      pool: Section pool.
      opening: Key rollout.opening.
    """
    bound = dict(base_url="", environment="", action_format=None, transport=None, upstream=None)
    check(EnvClient, "client", client, **bound)
    check(EnvPool, "pool", pool, clients={})
    for name, entry in settings.items():
        if entry.instructions and opening != "system":
            raise ConfigError(
                f"config.environments.{name}.instructions would not be shown: "
                f"config.rollout.opening is {opening!r}"
            )
        if not entry.url and not entry.module and name not in SHIPPED:
            nearest = difflib.get_close_matches(name, SHIPPED, n=1)
            raise ConfigError(
                f"config.environments.{name}: there is no such environment"
                + (f"; did you mean {nearest[0]!r}?" if nearest else ".")
                + f" Known: {', '.join(SHIPPED)}. For another one give its module or its url"
            )


def evaluation_turns(settings: Mapping[str, EnvironmentSettings], default: int) -> dict[str, int]:
    """Turn limit of a held-out episode by environment."""
    return {name: entry.eval_max_turns or default for name, entry in settings.items()}


def open_environments(
    stack: contextlib.ExitStack,
    settings: Mapping[str, EnvironmentSettings],
    folder: RunFolder,
    *,
    transport: TransportSettings,
    client_options: Mapping[str, Any],
    pool_options: Mapping[str, Any],
    opening: str,
    client_class: type[EnvClient] = EnvClient,
) -> Environments:
    """Starts the servers that have no URL, connects, and selects the tasks.

    Everything opened is closed by `stack`, also when a later step fails. `client_class` is what
    talks to the servers: a scripted player's asks them more than an agent's.
    """
    own = [name for name, entry in settings.items() if not entry.url]
    modules = {name: settings[name].module for name in own if settings[name].module}
    options = {name: settings[name].options for name in own if settings[name].options}
    in_process = own if transport.transport == "inprocess" else []
    transports = stack.enter_context(_in_process(in_process, modules, options))
    servers = stack.enter_context(
        EmbeddedServers(
            [name for name in own if name not in transports],
            modules=modules,
            options=options,
            log_folder=folder.logs,
            arguments=[f"--workers={transport.workers}"],
        )
    )
    urls = {name: entry.url or f"inprocess://{name}" for name, entry in settings.items()}
    urls |= servers.urls
    clients = {}
    for name, entry in settings.items():
        clients[name] = call(
            client_class,
            "client",
            client_options,
            base_url=urls[name],
            environment=name,
            action_format=entry.action_format or None,
            transport=transports[name] if name in transports else None,
        )
        stack.callback(clients[name].disconnect)
    pool = call(EnvPool, "pool", pool_options, clients=clients)
    stack.callback(pool.close)

    def revive() -> None:
        """Starts dead servers of this run again; their old sessions are gone with them."""
        for name in servers.ensure_alive():
            pool.invalidate(name)

    return _describe(settings, clients, pool, opening, revive)


@contextlib.contextmanager
def _in_process(
    names: Sequence[str],
    modules: Mapping[str, str],
    options: Mapping[str, Mapping[str, Any]],
) -> Iterator[Mapping[str, InProcessTransport]]:
    with contextlib.ExitStack() as stack:
        try:
            transports = stack.enter_context(in_process_servers(names, modules, options))
        except ValueError as error:
            raise ConfigError(f"config.env.transport='inprocess': {error}") from error
        yield transports


def _describe(
    settings: Mapping[str, EnvironmentSettings],
    clients: Mapping[str, EnvClient],
    pool: EnvPool,
    opening: str,
    revive: Callable[[], None],
) -> Environments:
    texts, manifests = {}, {}
    train_tasks: list[Task] = []
    eval_tasks: list[Task] = []
    for name, entry in settings.items():
        client = clients[name]
        spec = spec_when_ready(client, pool.patience_s)
        manifests[name] = spec.manifest_sha256
        logging.info(
            "%s at %s: %d tasks, version %s", name, client.base_url, spec.num_tasks, spec.version
        )
        preamble: tuple[Mapping[str, str], ...] = ()
        if opening == "system":
            preamble = ({"role": "system", "content": entry.instructions or spec.instructions},)
        texts[name] = EnvironmentText(preamble=preamble, parse=client.parse)
        manifest = functools.lru_cache(client.tasks)
        train_tasks += _select(name, entry.train, manifest, "train")
        eval_tasks += _select(name, entry.eval, manifest, "eval")
    _check_held_out(train_tasks, eval_tasks)
    return Environments(
        clients=clients,
        pool=pool,
        texts=texts,
        train_tasks=train_tasks,
        eval_tasks=eval_tasks,
        manifests=manifests,
        revive=revive,
    )


def _select(
    name: str,
    options: Mapping[str, Any],
    manifest: Callable[[], Sequence[Mapping[str, Any]]],
    what: str,
) -> list[Task]:
    if not options:
        return []
    needs_manifest = options["kind"] in ("split", "suite")
    return call(
        selection.select,
        f"environments.{name}.{what}",
        options,
        environment=name,
        manifest=manifest() if needs_manifest else (),
    )


def _check_held_out(train_tasks: Sequence[Task], eval_tasks: Sequence[Task]) -> None:
    """No task may be trained on and evaluated."""
    shared = {t.item_id for t in train_tasks} & {t.item_id for t in eval_tasks}
    if shared:
        raise ConfigError(
            f"{len(shared)} tasks are both in train and eval, such as {sorted(shared)[0]}; "
            "choose disjoint tasks in config.environments"
        )
