"""Browser of this process, shared by all episodes, started and restarted on demand."""

import asyncio
import atexit
import contextlib
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from agentgym_envs.webarena.browser.background import Background
from agentgym_envs.webarena.browser.errors import BrowserLost
from agentgym_envs.webarena.browser.launch import Chromium, require_browser
from agentgym_envs.webarena.browser.reach import Reach
from agentgym_envs.webarena.browser.session import BrowserSession
from agentgym_envs.webarena.browser.start import Start

_LOGGER = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_STOP_SECONDS = 5.0
_START_SECONDS = 60.0


class BrowserProcess:
    """Browser in a separate event loop, for synchronous callers; `get` returns a shared one."""

    def __init__(self, reach: Reach):
        self._reach = reach
        self._executable = require_browser()
        self._background = Background("browser")
        self._chromium: Chromium | None = None
        self._starting: asyncio.Lock | None = None
        atexit.register(self.stop)

    @classmethod
    def get(cls, reach: Reach) -> "BrowserProcess":
        """Returns this process's browser for the servers of `reach`.

        Raises:
          SetupError: Playwright or Chromium is missing.
        """
        rules = reach.resolver_rules()
        with _GUARD:
            if rules not in _PROCESSES:
                _PROCESSES[rules] = cls(reach)
            return _PROCESSES[rules]

    @property
    def chromium(self) -> Chromium | None:
        """Returns the browser that was started last; None before the first start."""
        return self._chromium

    def start(self) -> None:
        """Starts the browser unless it is running.

        Raises:
          SetupError: The browser does not start.
        """
        self.run(self._running(), _START_SECONDS)

    def run(self, work: Coroutine[Any, Any, _Result], seconds: float) -> _Result:
        """Runs a coroutine in the browser's loop and returns its result.

        Raises:
          TimeoutError: The coroutine took longer than `seconds`.
        """
        return self._background.run(work, seconds)

    async def open(self, start: Start) -> BrowserSession:
        """Begins an episode and restarts the browser if it is gone.

        Raises:
          PageLost: A site does not answer.
          BrowserLost: The browser ended while the episode began.
        """
        return await BrowserSession.open(await self._running(), self._reach, start)

    def stop(self) -> None:
        """Stops the browser; the next episode starts another."""
        chromium, self._chromium = self._chromium, None
        if chromium is not None:
            with contextlib.suppress(TimeoutError, BrowserLost):
                self.run(chromium.stop(), _STOP_SECONDS)

    async def _running(self) -> Chromium:
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            gone = self._chromium
            if gone is not None and gone.is_running:
                return gone
            if gone is not None:
                _LOGGER.warning("the browser is gone; another one is started")
                await gone.stop()
            self._chromium = await Chromium.start(self._executable, self._reach)
            return self._chromium


_PROCESSES: dict[str, BrowserProcess] = {}
_GUARD = threading.Lock()
