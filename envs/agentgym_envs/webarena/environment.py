"""One task on web sites behind the text protocol: a synchronous face of a browser session."""

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from agentgym_envs.base.environment import (
    Environment,
    EnvironmentFault,
    SimulatorLost,
    StepResult,
)
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.webarena import texts
from agentgym_envs.webarena.browser import actions
from agentgym_envs.webarena.browser.errors import ActionRefused, BrowserLost, PageHung, PageLost
from agentgym_envs.webarena.browser.process import BrowserProcess
from agentgym_envs.webarena.browser.session import BrowserSession
from agentgym_envs.webarena.browser.start import Start
from agentgym_envs.webarena.evaluation.evaluate import evaluate
from agentgym_envs.webarena.evaluation.functions import FunctionError
from agentgym_envs.webarena.evaluation.judge import JudgeError
from agentgym_envs.webarena.evaluation.page import PageError
from agentgym_envs.webarena.evaluation.verdict import Verdict
from agentgym_envs.webarena.player import NoSolution, Player
from agentgym_envs.webarena.tasks import WebTask
from agentgym_envs.webarena.world import Entry, World

# A server stops a worker that takes 30 s, with all episodes in it; this costs one alone.
_RESET_SECONDS = 28.0
_STEP_SECONDS = 25.0
_JUDGED_SECONDS = 90.0  # to score where a judge is asked; such servers need --step-seconds 100
_CLOSE_SECONDS = 8.0
_SMALL_PICTURE = 0.5  # of the window's 1280 x 720, for a page with many of them
_QUALITY = 60  # of JPEG, in percent

_CLICKED = frozenset(
    {
        "button",
        "checkbox",
        "combobox",
        "link",
        "menuitem",
        "option",
        "radio",
        "searchbox",
        "switch",
        "tab",
        "textbox",
    }
)
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_ORIGIN = re.compile(r"https?://[^/?#@]*(?=[/?#]|$)", re.IGNORECASE)
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class Begun(StepResult):
    """Answer to a reset; `observation` is what an agent is told: the page and the objective.

    Attributes:
      tree: the tabs and the page alone.
      sites: that the task plays on.
      intent: the objective.
    """

    tree: str
    sites: tuple[str, ...]
    intent: str


@dataclasses.dataclass
class Episode:
    """One task being played.

    Attributes:
      data_idx: index of the task.
      entry: the task as the catalogue has it.
      task: with addresses.
      start: how it began.
      session: its tabs.
      previous: the last action, as it is told.
      prompt: what the agent saw last that was no refusal.
      replies: all actions, as they came.
      seen: what came of each of them; before them what was seen first.
      verdict: of the evaluators, once it has ended.
      answer: what it was stopped with, once it has ended.
      has_hung: it has ended because its page did not respond.
    """

    data_idx: int
    entry: Entry
    task: WebTask
    start: Start
    session: BrowserSession
    previous: str = texts.NO_PREVIOUS
    prompt: str = ""
    replies: list[str] = dataclasses.field(default_factory=list)
    seen: list[str] = dataclasses.field(default_factory=list)
    verdict: Verdict | None = None
    answer: str | None = None
    player: Player | None = None
    has_hung: bool = False


class WebArenaEnvironment(Environment):
    """A task on web sites. All environments of a process share a browser; each has tabs of its own.

    Args:
      world: tasks and sites.
      is_original: behave as WebArena where that is odd; README.md lists where.
    """

    def __init__(self, world: World, *, is_original: bool = False):
        self._world = world
        self._is_original = is_original
        self._process = BrowserProcess.of(world.reach)
        self._current: Episode | None = None

    @property
    def episode(self) -> Episode:
        """The task being played.

        Raises:
          EnvironmentFault: NOT_RESET.
        """
        if self._current is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET, "webarena: call reset with the index of a task first"
            )
        return self._current

    @property
    def prompt(self) -> str:
        """What the agent sees of the page now."""
        return self.episode.prompt

    def reset(self, data_idx: int) -> Begun:
        """Starts a task.

        Raises:
          EnvironmentFault: UNKNOWN_TASK; SIMULATOR if a site does not answer.
          SimulatorLost: the browser is gone.
        """
        entries = self._world.entries
        if not 0 <= data_idx < len(entries):
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK,
                f"webarena has the tasks 0..{len(entries) - 1}, data_idx was {data_idx}",
            )
        self.close()
        entry = entries[data_idx]
        task = entry.task.at(self._world.urls)
        start = self._world.start(task, is_original=self._is_original)
        try:
            session = self._run(self._process.open(start), _RESET_SECONDS)
        except BaseException:
            self._world.finish(start)
            raise
        episode = self._current = Episode(data_idx, entry, task, start, session)
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
        """Does one action; `stop` ends the episode and is rewarded by the evaluators.

        Raises:
          EnvironmentFault: NOT_RESET, FINISHED; SIMULATOR if a page or a site broke down.
          SimulatorLost: the browser is gone.
        """
        episode = self._playing()
        try:
            result = self._play(episode, action)
        except ActionRefused as refused:
            result = StepResult(texts.refusal(str(refused)), reward=0.0, score=0.0, done=False)
        except PageHung:
            # The agent brought the page there, so the episode counts as a failure.
            episode.verdict, episode.has_hung = Verdict(0.0, ()), True
            episode.prompt = texts.HUNG
            result = StepResult(texts.HUNG, reward=0.0, score=0.0, done=True)
        episode.replies.append(action)
        episode.seen.append(result.observation)
        return result

    def expert_action(self) -> str:
        """The next action of the task's scripted solution.

        Raises:
          EnvironmentFault: SIMULATOR, there is none from here.
        """
        episode = self._playing()
        try:
            return f"```{self._player(episode).next_action()}```"
        except NoSolution as error:
            raise EnvironmentFault(
                ErrorKind.SIMULATOR, f"webarena: task {episode.data_idx}: {error}"
            ) from error

    def valid_actions(self) -> list[str]:
        """Clicks on what can be clicked, and scrolling."""
        elements = self._playing().session.sight.elements
        clicks = [f"click [{n}]" for n, node in elements.items() if node.role in _CLICKED]
        return [f"```{action}```" for action in [*clicks, "scroll [down]", "scroll [up]"]]

    def snapshot(self) -> dict[str, Any]:
        """Task and actions; everything else follows from them."""
        episode = self.episode
        return {"data_idx": episode.data_idx, "actions": list(episode.replies)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Plays the actions of a snapshot again."""
        self.reset(snapshot["data_idx"])
        for action in snapshot["actions"]:
            self.step(action)

    def state(self) -> dict[str, Any]:
        """Task, tabs, the page as text and as a small picture, for viewers."""
        if self._current is None:
            return {}
        episode = self._current
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
        """The window as a JPEG data URI in its full size."""
        url = self._world.shown(self.episode.session.sight.url)
        return {"screenshot": self._picture(1.0), "url": url}

    def metadata(self) -> dict[str, Any]:
        """The elements of the page by their number, with their places, as WebArena tells them."""
        elements = self.episode.session.sight.elements
        nodes = {
            str(number): {"union_bound": list(node.box), "text": f"[{number}] {node.text}"}
            for number, node in elements.items()
        }
        return {"text": {"obs_nodes_info": nodes}}

    def close(self) -> None:
        """Closes the tabs and forgets what the episode did to the sites."""
        if self._current is None:
            return
        episode, self._current = self._current, None
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
        """The end: the evaluators look at the page, in a tab of their own where they leave it."""
        scoring = self._world.scoring
        work = evaluate(
            episode.task,
            action.text,
            episode.session.page(),
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

    def _player(self, episode: Episode) -> Player:
        """The scripted player, told what has happened so far."""
        if episode.entry.solution is None:
            raise NoSolution("there is no scripted solution")
        if episode.player is None:
            home = self._world.shown(episode.task.start_urls[0])
            episode.player = Player(episode.entry.solution, home, episode.seen[0])
        for number in range(episode.player.actions, len(episode.replies)):
            episode.player.saw(episode.replies[number], episode.seen[number + 1])
        return episode.player

    def _playing(self) -> Episode:
        episode = self.episode
        if episode.verdict is not None:
            raise EnvironmentFault(
                ErrorKind.FINISHED, "webarena: this episode is over; reset to start another one"
            )
        return episode

    def _run(self, work: Coroutine[Any, Any, _Result], seconds: float) -> _Result:
        """The result of work in the browser; what breaks down costs this episode alone."""
        try:
            with _typed():
                return self._process.run(work, seconds)
        except EnvironmentFault:
            self.close()
            raise


@contextlib.contextmanager
def _typed() -> Iterator[None]:
    """Turns what browsers and evaluators raise into the errors of environments."""
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
    """Returns the address as a browser completes it, with scheme and host in lower case."""
    full = address if _SCHEME.match(address) else f"http://{address}"
    return _ORIGIN.sub(lambda origin: origin[0].lower(), full, count=1)


def _checks(verdict: Verdict | None) -> list[str]:
    parts = () if verdict is None else verdict.parts
    return [f"{part.check}: {'holds' if part.score else 'does not hold'}" for part in parts]


def make(world: Callable[[], World], *, is_original: bool) -> Callable[[], WebArenaEnvironment]:
    """A factory of environments in one world, which is made when it is needed."""
    return lambda: WebArenaEnvironment(world(), is_original=is_original)
