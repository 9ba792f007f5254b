"""One tab: waiting until its page has settled, reading the page, finding click positions."""

import asyncio
import contextlib
import dataclasses
import time
from typing import Any

from playwright.async_api import CDPSession, Error, Page

from agentgym_envs.webarena.browser import scripts, tree
from agentgym_envs.webarena.browser.errors import ActionRefused, PageLost
from agentgym_envs.webarena.browser.launch import check_connected

WIDTH, HEIGHT = 1280, 720  # window size in CSS pixels, the same as in WebArena
LOAD_SECONDS = 15.0  # limit for loading a page
_QUIET_SECONDS = 3.0  # limit for a loaded page to settle; after it, the page is read as it is
_ANSWER_SECONDS = 5.0  # limit for one response of Chromium
_REQUEST_SECONDS = 1.0  # age after which a requested navigation that never began is ignored
_ALIVE_SECONDS = 4.0  # limit for a page's answer to a trivial script; less than `_ANSWER_SECONDS`
_BEAT = 0.01  # seconds
_ATTEMPTS = 4  # maximum number of attempts to read a page that is being replaced


@dataclasses.dataclass(frozen=True)
class View:
    """Content of a tab.

    Attributes:
      document: Id of the document; keys of elements are unique within a document.
    """

    document: str
    nodes: tuple[tree.Node, ...]


class Tab:
    """Page with a session of Chromium's DevTools protocol in addition to Playwright's.

    Attributes:
      opened: Number of pages that this page has opened so far.
    """

    def __init__(self, page: Page, client: CDPSession, frame: str, document: str):
        self.page = page
        self.title = ""
        self.opened = 0
        self._client = client
        self._frame = frame
        self._document = document
        self._is_loading = False
        self._requested = 0.0  # time at which a navigation was requested; 0 if there is none
        self._has_crashed = False
        self._status = 0  # status of the last response with a document
        self._failure = ""  # error of the last request for a document
        page.on("crash", self._on_crash)
        for event, react in {
            "Page.frameRequestedNavigation": self._on_requested,
            "Page.frameStartedLoading": self._on_started,
            "Page.frameStartedNavigating": self._on_requested,
            "Page.frameStoppedLoading": self._on_stopped,
            "Page.navigatedWithinDocument": self._on_within,
            "Page.frameNavigated": self._on_navigated,
            "Page.windowOpen": self._on_window,
        }.items():
            client.on(event, react)
        page.on("response", self._on_response)
        page.on("requestfailed", self._on_failed)

    @classmethod
    async def watch(cls, page: Page) -> "Tab":
        """Begins to listen to a page's events."""
        client = await page.context.new_cdp_session(page)
        answers = await asyncio.gather(
            client.send("Page.getFrameTree"),
            client.send("Accessibility.enable"),
            client.send("Page.enable"),
        )
        frame = answers[0]["frameTree"]["frame"]
        return cls(page, client, frame["id"], frame["loaderId"])

    @property
    def failure(self) -> str:
        """Returns the error of the last request for a document; empty if the site answered."""
        if self._failure:
            return self._failure
        return f"status {self._status}" if self._status in (502, 503, 504) else ""

    async def goto(self, url: str) -> None:
        """Opens an address; returns before the page is fully loaded.

        Raises:
          ActionRefused: The address is a file to download.
        """
        self._failure, self._status = "", 0
        try:
            await self.page.goto(url, wait_until="commit", timeout=LOAD_SECONDS * 1000)
        except Error as error:
            await self.check_alive(error)
            if "ERR_ABORTED" in error.message or "Download is starting" in error.message:
                raise ActionRefused("the address is no page, but a file to download") from error
            if "ERR_" not in error.message and "interrupted" not in error.message:
                raise PageLost(f"{url} does not load: {error.message}") from error

    async def settle(self) -> None:
        """Waits, for a limited time, until the page is loaded and nothing moves in it.

        Raises:
          PageLost: The page crashed.
        """
        deadline = time.monotonic() + LOAD_SECONDS
        while time.monotonic() < deadline:
            # Once the page has answered, all events of the last action have arrived.
            is_quiet = await self._wait_for_quiet()
            if is_quiet and not self._is_busy():
                return
            while self._is_busy() and time.monotonic() < deadline:
                await asyncio.sleep(_BEAT)
            if is_quiet is False:  # the page is loaded but never became quiet
                return

    async def look(self, *, is_original: bool) -> View:
        """Reads the tree of the window's content; `tree.read_nodes` explains `is_original`.

        Raises:
          PageLost: The page does not answer.
        """
        for _ in range(_ATTEMPTS):
            document = self._document
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    found, snapshot = await asyncio.gather(
                        self._client.send("Accessibility.getFullAXTree"),
                        self._client.send("DOMSnapshot.captureSnapshot", dict(tree.SNAPSHOT)),
                    )
            except (Error, TimeoutError) as error:
                await self.check_alive(error)
                await self.settle()
                continue
            # if the ids differ, the page was replaced between the two responses
            if document == self._document:
                nodes = tree.read_nodes(
                    found["nodes"], snapshot, (WIDTH, HEIGHT), is_original=is_original
                )
                self.title = tree.title(nodes)
                return View(document, tuple(nodes))
            await self.settle()
        raise PageLost(f"{self.page.url} cannot be read")

    async def point_of(self, node: tree.Node) -> tuple[float, float]:
        """Scrolls an element into the window and returns the position for a click on it.

        Raises:
          ActionRefused: The element has no visible position.
        """
        target = {"backendNodeId": node.backend_id}
        try:
            await self._ask("DOM.scrollIntoViewIfNeeded", target)
            quads = (await self._ask("DOM.getContentQuads", target))["quads"]
        except Error as error:
            await self.check_alive(error)
            raise ActionRefused(_NOT_THERE) from error
        for quad in quads:
            xs, ys = quad[0::2], quad[1::2]
            # Only the part in the window counts, because a table can be larger.
            left, right = max(0, min(xs)), min(WIDTH, max(xs))
            top, bottom = max(0, min(ys)), min(HEIGHT, max(ys))
            if right > left and bottom > top:
                return (left + right) / 2, (top + bottom) / 2
        raise ActionRefused(_NOT_THERE)

    async def call(self, node: tree.Node, function: str, *arguments: Any) -> Any:
        """Calls a JavaScript function with an element as `this` and returns its result.

        Raises:
          ActionRefused: The element is gone.
        """
        try:
            found = await self._ask("DOM.resolveNode", {"backendNodeId": node.backend_id})
            answer = await self._ask(
                "Runtime.callFunctionOn",
                {
                    "functionDeclaration": function,
                    "objectId": found["object"]["objectId"],
                    "arguments": [{"value": argument} for argument in arguments],
                    "returnByValue": True,
                },
            )
        except Error as error:
            await self.check_alive(error)
            raise ActionRefused(_NOT_THERE) from error
        if "exceptionDetails" in answer:
            raise ActionRefused(_NOT_THERE)
        return answer["result"].get("value")

    async def picture(self, *, scale: float, quality: int) -> str:
        """Returns the window as JPEG in base64; scale is a fraction of 1280 x 720, quality is in
        percent.

        Raises:
          PageLost: The page does not answer.
        """
        try:
            metrics = await self._ask("Page.getLayoutMetrics", {})
            seen = metrics["cssVisualViewport"]
            clip = {
                "x": seen["pageX"],
                "y": seen["pageY"],
                "width": WIDTH,
                "height": HEIGHT,
                "scale": scale,
            }
            asked = {"format": "jpeg", "quality": quality, "clip": clip}
            return str((await self._ask("Page.captureScreenshot", asked))["data"])
        except (Error, TimeoutError) as error:
            await self.check_alive(error)
            raise PageLost(f"no screenshot of {self.page.url}") from error

    async def answers(self) -> bool:
        """Returns False if a script prevents the page from answering."""
        try:
            async with asyncio.timeout(_ALIVE_SECONDS):
                await self._client.send("Runtime.evaluate", {"expression": "0"})
        except TimeoutError:
            return False
        except Error:  # the page is being replaced or is gone; later calls notice that
            return True
        return True

    async def interrupt(self) -> None:
        """Stops the script that runs in the page, as users do in the browser's own dialog."""
        with contextlib.suppress(Error, TimeoutError):
            await self._ask("Runtime.terminateExecution", {})

    async def check_alive(self, error: BaseException) -> None:
        """Raises an error if the page or browser is dead; returns if the page only rejected a call.

        Raises:
          PageLost: The page crashed.
          BrowserLost: The browser is gone.
        """
        if self._has_crashed or "crashed" in str(error):
            raise PageLost(f"the page {self.page.url} crashed") from error
        browser = self.page.context.browser
        assert browser is not None  # None only for a context without a browser
        await check_connected(browser, error)

    async def _ask(self, method: str, parameters: dict[str, Any]) -> Any:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await self._client.send(method, parameters)

    async def _wait_for_quiet(self) -> bool | None:
        """Returns True if the page has settled, False if not, None if it was replaced meanwhile."""
        try:
            async with asyncio.timeout(_QUIET_SECONDS + 1.0):
                return bool(await self.page.evaluate(scripts.QUIET, _QUIET_SECONDS * 1000))
        except TimeoutError:
            return False
        except Error as error:
            await self.check_alive(error)
            await asyncio.sleep(_BEAT)
            return None

    def _is_busy(self) -> bool:
        is_asked = self._requested and time.monotonic() - self._requested < _REQUEST_SECONDS
        return self._is_loading or bool(is_asked)

    def _is_ours(self, event: dict[str, Any]) -> bool:
        return event.get("frameId") == self._frame

    def _on_requested(self, event: dict[str, Any]) -> None:
        if self._is_ours(event):
            self._requested = time.monotonic()

    def _on_started(self, event: dict[str, Any]) -> None:
        if self._is_ours(event):
            self._is_loading = True

    def _on_stopped(self, event: dict[str, Any]) -> None:
        if self._is_ours(event):
            self._is_loading, self._requested = False, 0.0

    def _on_within(self, event: dict[str, Any]) -> None:
        if self._is_ours(event):
            self._requested = 0.0

    def _on_navigated(self, event: dict[str, Any]) -> None:
        if event["frame"]["id"] == self._frame:
            self._document = event["frame"]["loaderId"]
            self._requested = 0.0

    def _on_window(self, event: dict[str, Any]) -> None:
        self.opened += 1

    def _on_crash(self, page: Page) -> None:
        self._has_crashed = True

    def _on_response(self, response: Any) -> None:
        if response.request.is_navigation_request() and response.frame == self.page.main_frame:
            self._status, self._failure = response.status, ""

    def _on_failed(self, request: Any) -> None:
        if request.is_navigation_request() and request.frame == self.page.main_frame:
            failure = request.failure or ""
            # Two failures are ignored: unknown host names, and navigations replaced by newer ones.
            if not any(word in failure for word in ("NAME_NOT_RESOLVED", "ABORTED", "BLOCKED")):
                self._failure = failure


_NOT_THERE = "the element is not there any more, or is hidden"
