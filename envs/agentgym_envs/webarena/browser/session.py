"""The tabs of one episode and what actions do to them."""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from playwright.async_api import Dialog, Error, Page

from agentgym_envs.webarena.browser import scripts
from agentgym_envs.webarena.browser.actions import Action
from agentgym_envs.webarena.browser.errors import ActionRefused, PageHung, PageLost
from agentgym_envs.webarena.browser.launch import Chromium, check_connected
from agentgym_envs.webarena.browser.reach import Reach
from agentgym_envs.webarena.browser.start import Start
from agentgym_envs.webarena.browser.tab import HEIGHT, WIDTH, Tab, View
from agentgym_envs.webarena.browser.tree import Node, Numbering
from agentgym_envs.webarena.evaluation.page import PageError

_LOGGER = logging.getLogger(__name__)

MAX_TABS = 10  # an agent has no use for more, and each takes memory
_MAX_CHOICES = 40  # of a box to choose from, told when the wanted one is not there
_TYPED_BY_KEYS = 4  # last characters of a text: pages that complete words listen to keys
_HISTORY_SECONDS = 10.0
_OPEN_SECONDS = 5.0  # for a new window to come
_BEAT = 0.01
_WATCH_SECONDS = 0.5  # between questions to a page that is at work
_INTERRUPTIONS = 3  # of scripts, one directly after the other, until a page counts as hung
_Result = TypeVar("_Result")

# Names of keys as models write them -> Playwright's.
_KEYS = {
    "ctrl": "Control",
    "control": "Control",
    "cmd": "Control",
    "command": "Control",
    "meta": "Control",
    "alt": "Alt",
    "option": "Alt",
    "shift": "Shift",
    "enter": "Enter",
    "return": "Enter",
    "tab": "Tab",
    "esc": "Escape",
    "escape": "Escape",
    "backspace": "Backspace",
    "delete": "Delete",
    "del": "Delete",
    "space": "Space",
    "home": "Home",
    "end": "End",
    "pageup": "PageUp",
    "pagedown": "PageDown",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "arrowup": "ArrowUp",
    "arrowdown": "ArrowDown",
    "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight",
}


@dataclasses.dataclass(frozen=True)
class Sight:
    """What the agent sees.

    Attributes:
      tabs: titles, in order.
      current: index of the tab in front.
      url: its address.
      elements: number -> line of its tree, in order.
    """

    tabs: tuple[str, ...]
    current: int
    url: str
    elements: Mapping[int, Node]

    @property
    def text(self) -> str:
        """WebArena's observation: the tabs, an empty line, the tree."""
        tabs = " | ".join(
            f"Tab {index}{' (current)' if index == self.current else ''}: {title}"
            for index, title in enumerate(self.tabs)
        )
        lines = ("\t" * node.depth + f"[{n}] {node.text}" for n, node in self.elements.items())
        return "\n".join([tabs, "", *lines])


class BrowserSession:
    """One episode in a browser. Use `open`.

    Attributes:
      sight: what the agent saw last.
      dialogs: what pages said in dialogs, `kind: message`.
    """

    def __init__(self, chromium: Chromium, context: Any, reach: Reach, start: Start):
        self._chromium = chromium
        self._context = context
        self._reach = reach
        self._start = start
        self._tabs: list[Tab] = []
        self._new_pages: list[Page] = []
        self._numbering = Numbering()
        self._current = 0
        self.sight = Sight((), 0, "", {})
        self.dialogs: list[str] = []

    @classmethod
    async def open(cls, chromium: Chromium, reach: Reach, start: Start) -> "BrowserSession":
        """Opens the tabs of a task.

        Raises:
          PageLost: a site does not answer.
          BrowserLost: the browser is gone.
        """
        context = await chromium.new_context(
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=1,
            locale="en-US",
            timezone_id="UTC",
            reduced_motion="reduce",
            accept_downloads=False,
            service_workers="block",
            extra_http_headers=dict(start.headers),
            record_har_path=start.recording and start.recording.trace,
            record_har_content="omit",  # requests and what became of them, no pages
        )
        session = cls(chromium, context, reach, start)
        try:
            await session._begin()
        except Error as error:
            await session.close()
            await check_connected(chromium.browser, error)
            raise PageLost(f"a tab did not open: {error.message}") from error
        except BaseException:
            await session.close()
            raise
        return session

    @property
    def tab(self) -> Tab:
        """In front."""
        return self._tabs[self._current]

    async def perform(self, action: Action) -> None:
        """Does everything but `stop`, waits until the page rests, and looks at it.

        Raises:
          ActionRefused: it cannot be done; nothing happened.
          PageHung: its scripts keep it from answering.
          PageLost: the page or its site broke down.
          BrowserLost: the browser is gone.
        """
        await self.watched(self._perform(action))

    async def watched(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Returns the result of work in the page. Scripts that hang meanwhile are stopped.

        Raises:
          PageHung: others hang in their place.
        """
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(self._stop_hung_scripts())
        try:
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise PageHung(f"the page {self.tab.page.url} does not respond")
            return task.result()
        finally:
            task.cancel()
            watch.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    async def _stop_hung_scripts(self) -> None:
        """Returns when the page in front hung several times in a row."""
        hung = 0
        while hung < _INTERRUPTIONS:
            if not hung:
                await asyncio.sleep(_WATCH_SECONDS)
            tabs = self._tabs[self._current : self._current + 1]  # none while one is closed
            if not tabs or await tabs[0].answers():
                hung = 0
            else:
                hung += 1
                await tabs[0].interrupt()

    async def _perform(self, action: Action) -> None:
        opened = self.tab.opened
        front = self.tab
        try:
            await self._actions[action.name](self, action)
            await self.tab.settle()
            await self._wait_for_windows(front.opened - opened)
            await self._follow()
        except Error as error:
            await check_connected(self._chromium.browser, error)
            if self.tab.page.is_closed():  # by its own script
                await self._drop_closed()
                await self._follow()
                return
            raise PageLost(f"{action.name}: {error.message}") from error

    async def settle(self) -> None:
        """Waits until the page in front rests."""
        await self.tab.settle()

    async def picture(self, *, scale: float, quality: int) -> str:
        """The window as JPEG, in base64."""
        return await self.tab.picture(scale=scale, quality=quality)

    def page(self) -> "SessionPage":
        """The page in front, for the evaluators."""
        return SessionPage(self)

    async def spare_tab(self) -> Tab:
        """A tab with the same cookies that the agent does not see."""
        tab = await Tab.of(await self._context.new_page())
        self._new_pages.clear()
        return tab

    async def close(self) -> None:
        """Closes all tabs and forgets cookies; no trouble if the browser is gone."""
        try:
            async with asyncio.timeout(5.0):
                await self._context.close()
        except (Error, TimeoutError) as error:
            if self._chromium.is_running:
                _LOGGER.warning("a browser context did not close: %s", error)

    async def _begin(self) -> None:
        context = self._context
        if self._start.cookies:
            await context.add_cookies([dict(cookie) for cookie in self._start.cookies])
        if self._start.has_calendar:
            await context.add_init_script(scripts.CALENDAR)
        await context.add_init_script(scripts.WATCH)
        for url in self._start.urls:
            self._tabs.append(await Tab.of(await context.new_page()))
            self._watch(self._tabs[-1].page)
            await self._tabs[-1].goto(url)
        context.on("page", self._on_page)
        for tab in self._tabs:
            await tab.settle()
            tab.title = await tab.page.title()
        await self._follow()

    def _watch(self, page: Page) -> None:
        page.on("dialog", self._on_dialog)

    def _on_page(self, page: Page) -> None:
        self._watch(page)
        self._new_pages.append(page)

    async def _on_dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(f"{dialog.type}: {dialog.message}")
        try:
            if not self._start.is_original and dialog.type != "prompt":
                await dialog.accept()
            else:
                await dialog.dismiss()
        except Error as error:  # the page went away with its dialog
            _LOGGER.debug("a dialog could not be answered: %s", error)

    async def _follow(self) -> None:
        """Goes to a tab that the action opened, and looks."""
        await self._drop_closed()
        if self._new_pages:
            await self._adopt()
        if self.tab.failure and self._reach.problem(self.tab.page.url) is None:
            raise PageLost(f"{self.tab.page.url}: {self.tab.failure}")
        if self.tab.page.url.startswith("chrome-error:") and self.tab.failure:
            raise PageLost(f"a site does not answer: {self.tab.failure}")
        self._see(await self.tab.look(is_original=self._start.is_original))

    async def _wait_for_windows(self, count: int) -> None:
        """Until the pages are there that the last action opened."""
        deadline = asyncio.get_running_loop().time() + _OPEN_SECONDS
        while len(self._new_pages) < count and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_BEAT)

    async def _adopt(self) -> None:
        """Takes pages that opened by themselves among the tabs; the last comes to the front."""
        new, self._new_pages = self._new_pages, []
        for page in new:
            if page.is_closed():
                continue
            if len(self._tabs) >= MAX_TABS:
                await page.close()
                continue
            self._tabs.append(await Tab.of(page))
            self._current = len(self._tabs) - 1
            await self.tab.settle()

    async def _drop_closed(self) -> None:
        """Forgets tabs that are closed; there is always one."""
        front = self.tab
        self._tabs = [tab for tab in self._tabs if not tab.page.is_closed()]
        if not self._tabs:
            await self._open_blank()
        self._current = self._tabs.index(front) if front in self._tabs else len(self._tabs) - 1

    def _see(self, view: View) -> None:
        self.sight = Sight(
            tabs=tuple(tab.title for tab in self._tabs),
            current=self._current,
            url=self.tab.page.url,
            elements={self._numbering.number(view.document, node.key): node for node in view.nodes},
        )

    async def _open_blank(self) -> None:
        page = await self._context.new_page()
        if page in self._new_pages:
            self._new_pages.remove(page)
        else:
            self._watch(page)
        self._tabs.append(await Tab.of(page))

    def _element(self, action: Action) -> Node:
        node = self.sight.elements.get(action.element)
        if node is None or node.backend_id == 0:
            raise ActionRefused(f"there is no element [{action.element}] on this page")
        return node

    async def _click(self, action: Action) -> None:
        node = self._element(action)
        kind = await self.tab.call(node, scripts.FIELD_KIND)
        if kind == "select":  # an open list cannot be seen: its options come into the tree instead
            await self.tab.call(node, scripts.FOCUS)
        elif kind == "option":
            await self.tab.call(node, scripts.CHOOSE_THIS)
        else:
            await self.tab.page.mouse.click(*await self.tab.point_of(node))

    async def _hover(self, action: Action) -> None:
        await self.tab.page.mouse.move(*await self.tab.point_of(self._element(action)))

    async def _type(self, action: Action) -> None:
        node = self._element(action)
        kind = await self.tab.call(node, scripts.FIELD_KIND)
        if kind == "select":
            await self._choose(node, action.text)
            return
        if kind and kind != "option":
            if not await self.tab.call(node, scripts.SET_VALUE, action.text):
                raise ActionRefused(f"{action.text!r} does not fit into a field for a {kind}")
            await self.tab.call(node, scripts.FOCUS)
        else:
            await self.tab.page.mouse.click(*await self.tab.point_of(node))
            await self.tab.call(node, scripts.TO_END)
            keyboard = self.tab.page.keyboard
            head, tail = action.text[:-_TYPED_BY_KEYS], action.text[-_TYPED_BY_KEYS:]
            if head:
                await keyboard.insert_text(head)
            await keyboard.type(tail)
        if action.enter:
            await self.tab.page.keyboard.press("Enter")

    async def _choose(self, node: Node, wanted: str) -> None:
        found = await self.tab.call(node, scripts.CHOOSE, wanted)
        if found is not True:
            shown = ", ".join(map(repr, found[:_MAX_CHOICES]))
            dots = ", ..." if len(found) > _MAX_CHOICES else ""
            raise ActionRefused(f"{wanted!r} is none of the options: {shown}{dots}")

    async def _press(self, action: Action) -> None:
        keys = ["+"] if action.text == "+" else [key.strip() for key in action.text.split("+")]
        names = [_KEYS.get(key.lower(), key.lower() if len(key) == 1 else key) for key in keys]
        if len(keys) == 1 and len(keys[0]) == 1:
            names = keys  # a capital letter alone is one
        try:
            await self.tab.page.keyboard.press("+".join(names))
        except Error as error:
            if "Unknown key" not in error.message:
                raise
            raise ActionRefused(
                f"{action.text!r} is no key; keys are like Enter or Control+a"
            ) from error

    async def _scroll(self, action: Action) -> None:
        await self.tab.page.evaluate(scripts.SCROLL, 1 if action.text == "down" else -1)

    async def _goto(self, action: Action) -> None:
        problem = self._reach.problem(action.text)
        if problem is not None:
            raise ActionRefused(problem)
        await self.tab.goto(action.text)

    async def _move_in_history(self, action: Action) -> None:
        page = self.tab.page
        move = page.go_back if action.name == "go_back" else page.go_forward
        try:
            await move(wait_until="commit", timeout=_HISTORY_SECONDS * 1000)
        except Error as error:
            await check_connected(self._chromium.browser, error)
            _LOGGER.debug("%s: %s", action.name, error)  # there is no such page, or it takes long

    async def _new_tab(self, action: Action) -> None:
        if len(self._tabs) >= MAX_TABS:
            raise ActionRefused(f"there are {MAX_TABS} tabs already; close one first")
        await self._open_blank()
        self._current = len(self._tabs) - 1

    async def _tab_focus(self, action: Action) -> None:
        if not 0 <= action.tab < len(self._tabs):
            raise ActionRefused(
                f"there is no tab {action.tab}; tabs are 0 to {len(self._tabs) - 1}"
            )
        self._current = action.tab
        await self.tab.page.bring_to_front()

    async def _close_tab(self, action: Action) -> None:
        closed = self._tabs.pop(self._current)
        await closed.page.close()
        if not self._tabs:
            await self._open_blank()
        self._current = len(self._tabs) - 1
        await self.tab.page.bring_to_front()

    _actions: Mapping[str, Callable[["BrowserSession", Action], Awaitable[None]]] = {
        "click": _click,
        "hover": _hover,
        "type": _type,
        "press": _press,
        "scroll": _scroll,
        "goto": _goto,
        "go_back": _move_in_history,
        "go_forward": _move_in_history,
        "new_tab": _new_tab,
        "tab_focus": _tab_focus,
        "close_tab": _close_tab,
    }


class SessionPage:
    """The evaluators' `Page`: the agent's page, until an address is opened, in a tab of its own.

    So the agent's page can still be looked at when the episode has ended.

    Args:
      session: of the agent.
    """

    def __init__(self, session: BrowserSession):
        self._session = session
        self._tab = session.tab

    @property
    def url(self) -> str:
        """The page's address now."""
        return self._tab.page.url

    async def content(self) -> str:
        """The whole document as HTML."""
        async with self._errors():
            return await self._tab.page.content()

    async def evaluate(self, script: str) -> Any:
        """Result of a script in the page."""
        async with self._errors():
            return await self._tab.page.evaluate(script)

    async def goto(self, url: str) -> None:
        """Opens an address and waits until the page rests."""
        async with self._errors():
            if self._tab is self._session.tab:
                self._tab = await self._session.spare_tab()
            await self._tab.goto(url)
            await self._tab.settle()
        if self._tab.failure:
            raise PageError(f"{url}: {self._tab.failure}")

    @contextlib.asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        """A page that cannot do it is a PageError; one that is lost never scores an episode."""
        try:
            yield
        except Error as error:
            await self._tab.check_alive(error)
            raise PageError(error.message) from error
        except ActionRefused as error:
            raise PageError(str(error)) from error
