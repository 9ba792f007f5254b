"""Tabs of one episode and the effects of actions on them."""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from playwright.async_api import Dialog, Error, Page

from agentgym_envs.webarena.browser import scripts
from agentgym_envs.webarena.browser.actions import Action, keys_for_playwright
from agentgym_envs.webarena.browser.errors import ActionRefused, PageHung, PageLost
from agentgym_envs.webarena.browser.launch import Chromium, check_connected
from agentgym_envs.webarena.browser.reach import Reach
from agentgym_envs.webarena.browser.start import Start
from agentgym_envs.webarena.browser.tab import HEIGHT, WIDTH, Tab, View
from agentgym_envs.webarena.browser.tree import Node, Numbering
from agentgym_envs.webarena.evaluation.page import PageError

_LOGGER = logging.getLogger(__name__)

MAX_TABS = 10  # limits the memory of an episode
_MAX_CHOICES = 40  # maximum number of options that a rejection lists
# number of final characters typed as key presses, because pages with completion listen to keys
_TYPED_BY_KEYS = 4
_HISTORY_SECONDS = 10.0
_OPEN_SECONDS = 5.0  # limit for a new window to appear
_BEAT = 0.01
_WATCH_SECONDS = 0.5  # time between checks of a page that is working
_INTERRUPTIONS = 3  # number of scripts stopped in a row after which a page counts as hung
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class Sight:
    """The agent's view of the browser.

    Attributes:
      tabs: Titles of the tabs, in order.
      current: Index of the tab in front.
      elements: Lines of the tree by element id, in order.
    """

    tabs: tuple[str, ...]
    current: int
    url: str
    elements: Mapping[int, Node]

    @property
    def text(self) -> str:
        """Returns WebArena's observation: the tabs, an empty line, the tree."""
        tabs = " | ".join(
            f"Tab {index}{' (current)' if index == self.current else ''}: {title}"
            for index, title in enumerate(self.tabs)
        )
        lines = ("\t" * node.depth + f"[{n}] {node.text}" for n, node in self.elements.items())
        return "\n".join([tabs, "", *lines])


class BrowserSession:
    """One episode in a browser; `open` creates it.

    Attributes:
      dialogs: Messages of the pages' dialogs, `kind: message`.
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
          PageLost: A site does not answer.
          BrowserLost: The browser is gone.
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
            record_har_content="omit",  # records requests and responses without their content
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
        """Returns the tab in front."""
        return self._tabs[self._current]

    async def perform(self, action: Action) -> None:
        """Performs any action except `stop`, waits until the page has settled, and reads the page.

        Raises:
          ActionRefused: The action is impossible; nothing happened.
          PageHung: The page does not respond because of its scripts.
          PageLost: The page or its site broke down.
          BrowserLost: The browser is gone.
        """
        await self.watched(self._perform(action))

    async def watched(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Returns the result of a coroutine that works in the page.

        Scripts that hang in the meantime are stopped.

        Raises:
          PageHung: Further scripts hang after the stopped ones.
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
        """Stops hung scripts; returns when the page in front hung several times in a row."""
        hung = 0
        while hung < _INTERRUPTIONS:
            if not hung:
                await asyncio.sleep(_WATCH_SECONDS)
            # the list is empty while a tab is being closed
            tabs = self._tabs[self._current : self._current + 1]
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
            if self.tab.page.is_closed():  # a script of the page closed the tab
                await self._drop_closed()
                await self._follow()
                return
            raise PageLost(f"{action.name}: {error.message}") from error

    async def picture(self, *, scale: float, quality: int) -> str:
        """Returns the window as JPEG, in base64."""
        return await self.tab.picture(scale=scale, quality=quality)

    async def spare_tab(self) -> Tab:
        """Opens a tab that has the same cookies and that the agent does not see."""
        tab = await Tab.watch(await self._context.new_page())
        self._new_pages.clear()
        return tab

    async def close(self) -> None:
        """Closes all tabs and drops the cookies; does not fail if the browser is gone."""
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
            self._tabs.append(await Tab.watch(await context.new_page()))
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
        except Error as error:  # the page disappeared with its dialog
            _LOGGER.debug("a dialog could not be answered: %s", error)

    async def _follow(self) -> None:
        """Switches to a tab that the action opened, and reads the page in front."""
        await self._drop_closed()
        if self._new_pages:
            await self._adopt()
        if self.tab.failure and self._reach.problem(self.tab.page.url) is None:
            raise PageLost(f"{self.tab.page.url}: {self.tab.failure}")
        if self.tab.page.url.startswith("chrome-error:") and self.tab.failure:
            raise PageLost(f"a site does not answer: {self.tab.failure}")
        self._see(await self.tab.look(is_original=self._start.is_original))

    async def _wait_for_windows(self, count: int) -> None:
        """Waits, for a limited time, until `count` new pages have appeared."""
        deadline = asyncio.get_running_loop().time() + _OPEN_SECONDS
        while len(self._new_pages) < count and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_BEAT)

    async def _adopt(self) -> None:
        """Adds new pages, such as pop-ups, to the tabs and brings the last one to the front."""
        new, self._new_pages = self._new_pages, []
        for page in new:
            if page.is_closed():
                continue
            if len(self._tabs) >= MAX_TABS:
                await page.close()
                continue
            self._tabs.append(await Tab.watch(page))
            self._current = len(self._tabs) - 1
            await self.tab.settle()

    async def _drop_closed(self) -> None:
        """Removes closed tabs; opens a blank tab if none is left."""
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
        self._tabs.append(await Tab.watch(page))

    def _element(self, action: Action) -> Node:
        node = self.sight.elements.get(action.element)
        if node is None or node.backend_id == 0:
            raise ActionRefused(f"there is no element [{action.element}] on this page")
        return node

    async def _click(self, action: Action) -> None:
        node = self._element(action)
        kind = await self.tab.call(node, scripts.FIELD_KIND)
        if kind == "select":  # the tree shows the options, because an open list would be invisible
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
        try:
            await self.tab.page.keyboard.press(keys_for_playwright(action.text))
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
            _LOGGER.debug("%s: %s", action.name, error)  # the page does not exist or is slow

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
    """Page for the evaluators: the agent's page, or a separate tab once they open an address.

    Viewers can therefore still see the agent's page after the episode has ended.
    """

    def __init__(self, session: BrowserSession):
        self._session = session
        self._tab = session.tab

    @property
    def url(self) -> str:
        """Returns the current address of the page."""
        return self._tab.page.url

    async def content(self) -> str:
        """Returns the whole document as HTML."""
        async with self._errors():
            return await self._tab.page.content()

    async def evaluate(self, script: str) -> Any:
        """Returns the result of a script in the page."""
        async with self._errors():
            return await self._tab.page.evaluate(script)

    async def goto(self, url: str) -> None:
        """Opens an address and waits until the page has settled."""
        async with self._errors():
            if self._tab is self._session.tab:
                self._tab = await self._session.spare_tab()
            await self._tab.goto(url)
            await self._tab.settle()
        if self._tab.failure:
            raise PageError(f"{url}: {self._tab.failure}")

    @contextlib.asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        """Converts errors to PageError, except the errors of a crashed page or browser."""
        try:
            yield
        except Error as error:
            await self._tab.check_alive(error)
            raise PageError(error.message) from error
        except ActionRefused as error:
            raise PageError(str(error)) from error
