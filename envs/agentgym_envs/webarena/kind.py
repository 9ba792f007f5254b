"""Web navigation as a server: what it says about itself and the shape of its answers."""

import contextlib
import functools
import hashlib
import logging
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agentgym_envs.base import manifest
from agentgym_envs.base.environment import EnvironmentFault, SetupError, StepResult
from agentgym_envs.base.kind import (
    Answers,
    EnvIdxBody,
    EnvIdxStepBody,
    EnvironmentKind,
    ExtraRoute,
)
from agentgym_envs.base.protocol import EnvironmentSpec, ErrorKind
from agentgym_envs.webarena import texts
from agentgym_envs.webarena.browser.launch import browser_name, require_browser
from agentgym_envs.webarena.world import Entry, World

if TYPE_CHECKING:
    from agentgym_envs.webarena.sites.site import Site

_LOGGER = logging.getLogger(__name__)

# Changes when a page, a task, a text or the rules of the tree change.
BEHAVIOUR = "3"
MAX_TURNS = 15


ALL = "all"  # value of the option `sites`
INSTANCES, TEMPLATES = SPLITS = ("instances", "templates")  # values of the option `split`


class IdxBody(EnvIdxBody):
    """Body of `POST /reset`; the seed is AgentGym's, and changes nothing."""

    idx: int
    seed: int | None = 0


def make_kind(*, deployment: str = "", sites: str = ALL, split: str = INSTANCES) -> EnvironmentKind:
    """Web navigation for the server.

    Args:
      deployment: JSON file that describes a real deployment of WebArena, whose tasks are then
        played there; empty: the embedded sites and tasks.
      sites: of the embedded ones, those that are started, separated by commas, such as
        `shopping,reddit`; the others' tasks are left out.
      split: of the embedded tasks, what is held out for testing: `instances`, so that every
        template is trained, or `templates`, so that those that are tested are never trained.

    Raises:
      SetupError: something is not installed, or an option is wrong.
    """
    require_browser()
    if deployment:
        return _deployed_kind(pathlib.Path(deployment).expanduser())
    if split not in SPLITS:
        raise SetupError(f"webarena: split={split!r} is unknown; there are {', '.join(SPLITS)}")
    return _embedded_kind(sites, split)


def _embedded_kind(sites: str, split: str) -> EnvironmentKind:
    from agentgym_envs.webarena import embedded_world
    from agentgym_envs.webarena.embedded import embedded_tasks
    from agentgym_envs.webarena.embedded_sites import shared
    from agentgym_envs.webarena.sites.cluster import all_sites, sites_for

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
    return kind_of(
        entries,
        world,
        origin="embedded",
        version=f"embedded-{_short_hash(*versions)}",
        prepare=lambda: _start_browser(world()),
        shared=lambda: shared(names),
    )


def _deployed_kind(path: pathlib.Path) -> EnvironmentKind:
    from agentgym_envs.webarena.deployed_world import deployed_world, tasks_version

    world = functools.partial(deployed_world, path)
    entries = world().entries

    def prepare() -> None:
        _start_browser(world())
        world().log_in_everywhere()

    version = tasks_version([entry.task for entry in entries])
    return kind_of(entries, world, origin="webarena", version=version, prepare=prepare)


def _installed(sites: "Sequence[Site]") -> list[str]:
    """WebArena's names of the sites that can be started here; of the others it is told why not.

    Raises:
      SetupError: none can.
    """
    missing = {site.name: sentence for site in sites if (sentence := site.missing()) is not None}
    for name, sentence in missing.items():
        _LOGGER.warning("webarena: %s is left out: %s", name, sentence)
    if len(missing) == len(sites):
        raise SetupError("webarena: " + "; ".join(missing.values()))
    return [path for site in sites if site.name not in missing for path in site.paths]


def _start_browser(world: World) -> None:
    from agentgym_envs.webarena.browser.process import BrowserProcess

    BrowserProcess.of(world.reach).start()


def _short_hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def kind_of(
    entries: Sequence[Entry],
    world: Callable[[], World],
    *,
    origin: str,
    version: str,
    prepare: Callable[[], None],
    shared: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> EnvironmentKind:
    """Web navigation on some sites, ready to be served.

    Args:
      entries: the tasks.
      world: of this process; asked for when the first environment is made.
      origin: `webarena` for its own tasks and sites, else `embedded`; results never mix them.
      version: of the tasks and sites.
      prepare: see EnvironmentKind.
      shared: see EnvironmentKind.
    """
    # What needs Playwright is imported in functions: without it this module says what to install.
    from agentgym_envs.webarena.environment import WebArenaEnvironment, make

    browser = browser_name(require_browser())
    tasks = task_manifest(entries, origin, browser)
    return EnvironmentKind(
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
        factory=make(world, is_original=False),
        compat_factory=make(world, is_original=True),
        tasks=lambda: tasks,
        answers=Answers(
            create=lambda session_id, first: {"env_idx": session_id},
            reset=_reset_answer,
            step=_step_answer,
            observation=_observation_answer,
        ),
        create_body=None,
        reset_body=IdxBody,
        resets_on_create=False,
        compat_refused_when_done=frozenset({"step"}),
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
      entries: The tasks.
      origin: As for `kind_of`.
      browser: Name and version; the manifest has the first number of the version, because
        observations differ from one such release to the next.
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
    """The page as it is, also after a refusal."""
    if last is None:
        raise EnvironmentFault(
            ErrorKind.NOT_RESET, "this session was never reset. POST /reset first."
        )
    return environment.prompt
