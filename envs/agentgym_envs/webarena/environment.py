"""Tasks on web sites as an environment: a synchronous wrapper of a browser session."""

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from agentgym_envs.base.environment import (
    EnvironmentFault,
    SimulatorLost,
    StepResult,
    check_task,
)
from agentgym_envs.base.episodic import ReplayedEnvironment
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.webarena import texts
from agentgym_envs.webarena.browser import actions
from agentgym_envs.webarena.browser.errors import ActionRefused, BrowserLost, PageHung, PageLost
from agentgym_envs.webarena.browser.process import BrowserProcess
from agentgym_envs.webarena.browser.session import BrowserSession, SessionPage
from agentgym_envs.webarena.browser.start import Start
from agentgym_envs.webarena.evaluation.evaluate import evaluate
from agentgym_envs.webarena.evaluation.functions import FunctionError
from agentgym_envs.webarena.evaluation.judge import JudgeError
from agentgym_envs.webarena.evaluation.page import PageError
from agentgym_envs.webarena.evaluation.verdict import Verdict
from agentgym_envs.webarena.expert import Expert, NoSolution
from agentgym_envs.webarena.tasks import WebTask
from agentgym_envs.webarena.world import Entry, World

# A server kills a worker with all its episodes after 30 s; this limit ends only one episode.
_RESET_SECONDS = 28.0
_STEP_SECONDS = 25.0
# limit for scoring with a judge; a server with a judge needs --step-seconds 100
_JUDGED_SECONDS = 90.0
_CLOSE_SECONDS = 8.0
_SMALL_PICTURE = 0.5  # fraction of the window's 1280 x 720, for viewers with many pictures
_QUALITY = 60  # JPEG quality in percent

_CLICKED = frozenset(
    "button checkbox combobox link menuitem option radio searchbox switch tab textbox".split()
)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_ORIGIN = re.compile(r"https?://[^/?#@]*(?=[/?#]|$)", re.IGNORECASE)
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class Begun(StepResult):
    """Result of a reset; `observation` has the page and the objective.

    Attributes:
      tree: Only the tabs and the tree of the page.
      sites: Sites that the task uses.
    """

    tree: str
    sites: tuple[str, ...]
    intent: str


@dataclasses.dataclass
class Episode:
    """State of one episode.

    Attributes:
      entry: Task with placeholders, its split and its solution.
      task: Task with real addresses.
      prompt: Last observation of the agent that was not a rejection.
      seen: First observation, then the observation after each action.
      verdict: Verdict of the evaluators after the end, else None.
      has_hung: True if the episode ended because its page did not respond.
    """

    data_idx: int
    entry: Entry
    task: WebTask
    start: Start
    session: BrowserSession
    previous: str = texts.NO_PREVIOUS
    prompt: str = ""
    actions: list[str] = dataclasses.field(default_factory=list)
    seen: list[str] = dataclasses.field(default_factory=list)
    verdict: Verdict | None = None
    answer: str | None = None
    expert: Expert | None = None
    has_hung: bool = False

    @property
    def done(self) -> bool:
        """Returns True after the end of the episode."""
        return self.verdict is not None


class WebArenaEnvironment(ReplayedEnvironment[Episode]):
    """Task on web sites. All environments of a process share a browser; each has separate tabs.

    Args:
      is_original: True to reproduce WebArena's odd behaviour, which README.md lists.
    """

    name = "webarena"

    def __init__(self, world: World, *, is_original: bool = False):
        self._world = world
        self._is_original = is_original
        self._process = BrowserProcess.get(world.reach)

    @property
    def prompt(self) -> str:
        """Returns the agent's current view of the page."""
        return self.episode.prompt

    def reset(self, data_idx: int) -> Begun:
        """Starts a task.

        Raises:
          EnvironmentFault: UNKNOWN_TASK; SIMULATOR if a site does not answer.
          SimulatorLost: The browser is gone.
        """
        entries = self._world.entries
        check_task(self.name, data_idx, len(entries))
        self.close()
        entry = entries[data_idx]
        task = entry.task.at(self._world.urls)
        start = self._world.start(task, is_original=self._is_original)
        try:
            session = self._run(self._process.open(start), _RESET_SECONDS)
        except BaseException:
            self._world.finish(start)
            raise
        episode = self._episode = Episode(data_idx, entry, task, start, session)
        result = self._seen(episode)
        episode.seen.append(result.observation)
        return Begun(
            observation=result.observation,
            reward=0.0,
            score=0.0,
            done=False,
            tree=self._world.shown(session.sight.text),
            sites=task.sites,
            intent=task.intent,
        )

    def step(self, action: str) -> StepResult:
        """Performs one action. `stop` ends the episode, and the evaluators compute the reward.

        Raises:
          EnvironmentFault: NOT_RESET, FINISHED; SIMULATOR if a page or a site broke down.
          SimulatorLost: The browser is gone.
        """
        episode = self.playing
        try:
            result = self._play(episode, action)
        except ActionRefused as refused:
            result = StepResult(texts.refusal(str(refused)), reward=0.0, score=0.0, done=False)
        except PageHung:
            # The agent's actions led to this page, so the episode counts as a failure.
            episode.verdict, episode.has_hung = Verdict(0.0, ()), True
            episode.prompt = texts.HUNG
            result = StepResult(texts.HUNG, reward=0.0, score=0.0, done=True)
        episode.actions.append(action)
        episode.seen.append(result.observation)
        return result

    def expert_action(self) -> str:
        """Returns the next action of the task's scripted solution.

        Raises:
          EnvironmentFault: SIMULATOR if the solution has no action for this state.
        """
        episode = self.playing
        try:
            return f"```{self._expert(episode).next_action()}```"
        except NoSolution as error:
            raise EnvironmentFault(
                ErrorKind.SIMULATOR, f"webarena: task {episode.data_idx}: {error}"
            ) from error

    def valid_actions(self) -> list[str]:
        """Returns the clicks on clickable elements, and the scroll actions."""
        elements = self.playing.session.sight.elements
        clicks = [f"click [{n}]" for n, node in elements.items() if node.role in _CLICKED]
        return [f"```{action}```" for action in [*clicks, "scroll [down]", "scroll [up]"]]

    def state(self) -> dict[str, Any]:
        """Returns the task, the tabs and the page as text and as a small picture, for viewers."""
        if self._episode is None:
            return {}
        episode = self._episode
        sight = episode.session.sight
        picture = {} if episode.has_hung else {"screenshot": self._picture(_SMALL_PICTURE)}
        return {
            "data_idx": episode.data_idx,
            "objective": episode.task.intent,
            "sites": list(episode.task.sites),
            "url": self._world.shown(sight.url),
            "title": sight.tabs[sight.current],
            "tabs": list(sight.tabs),
            "page": self._world.shown(sight.text),
            "dialogs": list(episode.session.dialogs),
            "checks": _checks(episode.verdict),
            **picture,
        }

    def screenshot(self) -> dict[str, Any]:
        """Returns the window as a JPEG data URI in its full size."""
        url = self._world.shown(self.episode.session.sight.url)
        return {"screenshot": self._picture(1.0), "url": url}

    def metadata(self) -> dict[str, Any]:
        """Returns the page's elements with their positions, by element id, as in WebArena."""
        elements = self.episode.session.sight.elements
        nodes = {
            str(number): {"union_bound": list(node.box), "text": f"[{number}] {node.text}"}
            for number, node in elements.items()
        }
        return {"text": {"obs_nodes_info": nodes}}

    def close(self) -> None:
        """Closes the tabs and deletes the episode's copies of the sites' data."""
        if self._episode is None:
            return
        episode, self._episode = self._episode, None
        with contextlib.suppress(TimeoutError):
            self._process.run(episode.session.close(), _CLOSE_SECONDS)
        self._world.finish(episode.start, episode.answer)

    def _play(self, episode: Episode, reply: str) -> StepResult:
        action = actions.read_action(reply)
        if action.name == "stop":
            return self._stop(episode, action)
        element = _told(episode.session, action)
        if action.name == "goto":
            action = dataclasses.replace(action, text=self._world.real(_complete(action.text)))
        self._run(episode.session.perform(action), _STEP_SECONDS)
        episode.previous = self._world.shown(actions.describe(action, element))
        return self._seen(episode)

    def _stop(self, episode: Episode, action: actions.Action) -> StepResult:
        """Ends the episode: evaluators read the agent's page, and other addresses in a new tab."""
        scoring = self._world.scoring
        work = evaluate(
            episode.task,
            action.text,
            SessionPage(episode.session),
            scoring.judge,
            scoring.functions,
            changes=lambda: asyncio.to_thread(self._world.changes, episode.start),
            patience_seconds=scoring.patience_seconds,
        )
        seconds = _STEP_SECONDS if scoring.judge is None else _JUDGED_SECONDS
        episode.verdict = self._run(episode.session.watched(work), seconds)
        episode.answer = action.text
        episode.previous = actions.describe(action, "")
        episode.prompt = self._prompt(episode)
        score = episode.verdict.score
        return StepResult(episode.prompt, reward=score, score=score, done=True)

    def _seen(self, episode: Episode) -> StepResult:
        episode.prompt = self._prompt(episode)
        return StepResult(episode.prompt, reward=0.0, score=0.0, done=False)

    def _prompt(self, episode: Episode) -> str:
        sight = episode.session.sight
        shown = self._world.shown
        return texts.observation(
            shown(sight.text), shown(sight.url), episode.task.intent, episode.previous
        )

    def _picture(self, scale: float) -> str:
        picture = self.episode.session.picture(scale=scale, quality=_QUALITY)
        return f"data:image/jpeg;base64,{self._run(picture, _STEP_SECONDS)}"

    def _expert(self, episode: Episode) -> Expert:
        """Returns the scripted agent, after giving it all actions so far."""
        if episode.entry.solution is None:
            raise NoSolution("there is no scripted solution")
        if episode.expert is None:
            home = self._world.shown(episode.task.start_urls[0])
            episode.expert = Expert(episode.entry.solution, home, episode.seen[0])
        for number in range(episode.expert.actions, len(episode.actions)):
            episode.expert.saw(episode.actions[number], episode.seen[number + 1])
        return episode.expert

    def _run(self, work: Coroutine[Any, Any, _Result], seconds: float) -> _Result:
        """Returns the result of a coroutine run in the browser; an error ends only this episode."""
        try:
            with _typed():
                return self._process.run(work, seconds)
        except EnvironmentFault:
            self.close()
            raise


@contextlib.contextmanager
def _typed() -> Iterator[None]:
    """Converts errors of browsers and evaluators to errors of environments."""
    try:
        yield
    except BrowserLost as error:
        raise SimulatorLost(f"webarena: {error}") from error
    except TimeoutError as error:
        raise _fault(f"the browser did not answer in time ({error})") from error
    except (PageLost, PageError) as error:
        raise _fault(str(error)) from error
    except (JudgeError, FunctionError) as error:
        raise _fault(f"no verdict: {error}") from error


def _fault(message: str) -> EnvironmentFault:
    return EnvironmentFault(
        ErrorKind.SIMULATOR, f"webarena: {message}. The session is closed; create a new one."
    )


def _told(session: BrowserSession, action: actions.Action) -> str:
    node = session.sight.elements.get(action.element)
    return "" if node is None else f"{node.role} {node.name!r}"


def _complete(address: str) -> str:
    """Completes an address as a browser does, with scheme and host in lower case."""
    full = address if _SCHEME.match(address) else f"http://{address}"
    return _ORIGIN.sub(lambda origin: origin[0].lower(), full, count=1)


def _checks(verdict: Verdict | None) -> list[str]:
    parts = () if verdict is None else verdict.parts
    return [f"{part.check}: {'holds' if part.score else 'does not hold'}" for part in parts]
