"""Web navigation as a served environment: its spec, routes and answer bodies."""

import contextlib
import functools
import hashlib
import logging
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import SetupError, StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    EnvIdxBody,
    EnvIdxStepBody,
    ExtraRoute,
    ServedEnvironment,
    never_reset,
)
from agentgym_envs.webarena import texts
from agentgym_envs.webarena.browser.launch import browser_name, require_browser
from agentgym_envs.webarena.world import Entry, World

if TYPE_CHECKING:
    from agentgym_sites.site import Site

_LOGGER = logging.getLogger(__name__)

# Version of the behaviour; increase it when a page, a task, a message or a rule for building the
# accessibility tree changes.
BEHAVIOUR = "4"
MAX_TURNS = 15


ALL = "all"  # value of the option `sites`
INSTANCES, TEMPLATES = SPLITS = ("instances", "templates")  # values of the option `split`


class IdxBody(EnvIdxBody):
    """Body of `POST /reset`; the seed is AgentGym's and has no effect."""

    idx: int
    seed: int | None = 0


def make_served_environment(
    *, deployment: str = "", sites: str = ALL, split: str = INSTANCES
) -> ServedEnvironment:
    """Returns web navigation as a served environment.

    Args:
      deployment: JSON file that describes a real deployment of WebArena, whose tasks are then used;
        empty for the embedded sites and tasks.
      sites: Embedded sites to start, separated by commas, for example `shopping,reddit`; tasks of
        other sites are left out.
      split: Split of the embedded tasks: `instances`, where every template has training tasks, or
        `templates`, where test templates have none.

    Raises:
      SetupError: A package is not installed, or an option is wrong.
    """
    require_browser()
    if deployment:
        return _deployed_environment(pathlib.Path(deployment).expanduser())
    if split not in SPLITS:
        raise SetupError(f"webarena: split={split!r} is unknown; there are {', '.join(SPLITS)}")
    return _embedded_environment(sites, split)


def _embedded_environment(sites: str, split: str) -> ServedEnvironment:
    from agentgym_envs.webarena import embedded_world
    from agentgym_envs.webarena.embedded_sites import shared
    from agentgym_sites.cluster import all_sites, sites_for
    from agentgym_sites.tasks import embedded_tasks

    tasks = embedded_tasks()
    if sites == ALL:
        names = _installed(all_sites())
    else:
        names = [name.strip() for name in sites.split(",")]
    chosen = [each for each in tasks if set(each.task.sites) <= set(names)]
    applications = sites_for(names)
    if not chosen:
        raise SetupError(f"webarena: there are no tasks on the sites {sites!r} alone")
    if len(chosen) < len(tasks):
        _LOGGER.warning(
            "webarena: %d of %d embedded tasks are on these sites", len(chosen), len(tasks)
        )
    entries = [
        Entry(
            each.task,
            each.template_split if split == TEMPLATES else each.split,
            each.solution,
        )
        for each in chosen
    ]
    world = functools.cache(lambda: embedded_world.EmbeddedWorld(entries, names))
    versions = [f"{site.name} {site.version()}" for site in applications]
    return build_environment(
        entries,
        world,
        origin="embedded",
        version=f"embedded-{_short_hash(*versions)}",
        prepare=lambda: _start_browser(world()),
        shared=lambda: shared(names),
    )


def _deployed_environment(path: pathlib.Path) -> ServedEnvironment:
    from agentgym_envs.webarena.deployed_world import deployed_world, tasks_version

    world = functools.partial(deployed_world, path)
    entries = world().entries

    def prepare() -> None:
        _start_browser(world())
        world().log_in_everywhere()

    version = tasks_version([entry.task for entry in entries])
    return build_environment(entries, world, origin="webarena", version=version, prepare=prepare)


def _installed(sites: "Sequence[Site]") -> list[str]:
    """Returns WebArena's names of the sites that can start here; logs why others cannot.

    Raises:
      SetupError: No site can start.
    """
    missing = {site.name: sentence for site in sites if (sentence := site.missing()) is not None}
    for name, sentence in missing.items():
        _LOGGER.warning("webarena: %s is left out: %s", name, sentence)
    if len(missing) == len(sites):
        raise SetupError("webarena: " + "; ".join(missing.values()))
    return [path for site in sites if site.name not in missing for path in site.paths]


def _start_browser(world: World) -> None:
    from agentgym_envs.webarena.browser.process import BrowserProcess

    BrowserProcess.get(world.reach).start()


def _short_hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def build_environment(
    entries: Sequence[Entry],
    world: Callable[[], World],
    *,
    origin: str,
    version: str,
    prepare: Callable[[], object],
    shared: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> ServedEnvironment:
    """Returns web navigation on some sites as a served environment."""
    # Modules that need Playwright are imported in functions, so that without it the error says what
    # to install.
    from agentgym_envs.webarena.environment import WebArenaEnvironment

    browser = browser_name(require_browser())
    tasks = task_manifest(entries, origin, browser)
    return ServedEnvironment(
        spec=EnvironmentSpec(
            name="webarena",
            version=f"{BEHAVIOUR}-{version}-{browser.replace(' ', '-')}",
            instructions=texts.INSTRUCTIONS,
            action_format="raw",
            num_tasks=len(tasks),
            manifest_sha256=manifest.sha256(tasks),
            max_turns=MAX_TURNS,
            refusal=texts.REFUSED,
        ),
        banner="ok",
        factory=lambda: WebArenaEnvironment(world()),
        compat_factory=lambda: WebArenaEnvironment(world(), is_original=True),
        tasks=lambda: tasks,
        answers=Answers(
            create=lambda session_id, first: {"env_idx": session_id},
            reset=_reset_answer,
            step=_step_answer,
            observation=_observation_answer,
        ),
        reset_body=IdxBody,
        extra_routes=(
            ExtraRoute("/observation_metadata", "GET", WebArenaEnvironment.metadata),
            ExtraRoute("/screenshot", "GET", WebArenaEnvironment.screenshot),
        ),
        task_field="idx",
        session_body=EnvIdxBody,
        step_body=EnvIdxStepBody,
        compat_error_status=500,
        prepare=prepare,
        shared=shared,
        sessions_path="/list_envs",
    )


def task_manifest(entries: Sequence[Entry], origin: str, browser: str) -> list[dict[str, Any]]:
    """Returns the tasks without their answers.

    Args:
      entries: Tasks to list.
      origin: Same as in `build_environment`.
      browser: Name and version of the browser. The manifest has the first number of the version,
        because observations differ between major releases.
    """
    release = browser.split(".")[0]
    return [
        {
            "data_idx": data_idx,
            "split": entry.split,
            "world": origin,
            "browser": release,
            "task_id": entry.task.task_id,
            "sites": list(entry.task.sites),
            "template": entry.task.intent_template_id,
            "intent": entry.task.intent,
            "scored_by": list(entry.task.evaluation.eval_types),
        }
        for data_idx, entry in enumerate(entries)
    ]


def _reset_answer(session_id: int, result: Any) -> dict[str, Any]:
    return {
        "observation": result.tree,
        "sites": list(result.sites),
        "object": result.intent,
    }


def _step_answer(result: StepResult) -> dict[str, Any]:
    return {
        "observation": result.observation,
        "reward": result.reward,
        "terminated": result.done,
        "truncated": False,
        "info": None,
    }


def _observation_answer(environment: Any, last: StepResult | None) -> str:
    """Returns the observation of the current page, also after a rejection."""
    if last is None:
        raise never_reset()
    return environment.prompt
