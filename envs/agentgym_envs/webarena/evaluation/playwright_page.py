"""Playwright's page as the evaluators' `Page`."""

from collections.abc import Awaitable, Callable
from typing import Any

from playwright.async_api import Error
from playwright.async_api import Page as BrowserPage

from agentgym_envs.webarena.evaluation.page import PageError


async def _no_wait() -> None:
    """For pages that are complete with their `load` event."""


class PlaywrightPage:
    """Turns Playwright's errors into `PageError`.

    Args:
      page: a page of Playwright's async interface.
      settle: waits until a navigation has come to rest.
    """

    def __init__(self, page: BrowserPage, settle: Callable[[], Awaitable[None]] = _no_wait):
        self._page = page
        self._settle = settle

    @property
    def url(self) -> str:
        """The page's address now."""
        return self._page.url

    async def content(self) -> str:
        """The whole document as HTML."""
        try:
            return await self._page.content()
        except Error as error:
            raise PageError(error.message) from error

    async def evaluate(self, script: str) -> Any:
        """Result of a script in the page."""
        try:
            return await self._page.evaluate(script)
        except Error as error:
            raise PageError(error.message) from error

    async def goto(self, url: str) -> None:
        """Opens an address and waits until the page has settled."""
        try:
            await self._page.goto(url)
        except Error as error:
            raise PageError(error.message) from error
        await self._settle()
