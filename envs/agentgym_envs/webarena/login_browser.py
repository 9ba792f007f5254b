"""Logging in with Playwright, in a context that is thrown away afterwards."""

import contextlib
from collections.abc import Iterator
from typing import Any

from playwright.async_api import Browser, Error, Locator, Page

from agentgym_envs.webarena.deployment import Account
from agentgym_envs.webarena.login import By, Element, LoginError, log_in

ACTION_SECONDS = 15.0


async def cookies_of(browser: Browser, site: str, base: str, account: Account) -> list[Any]:
    """The cookies of an account, in Playwright's form.

    Raises:
      LoginError: nobody could be logged in.
    """
    context = await browser.new_context()
    try:
        context.set_default_timeout(ACTION_SECONDS * 1000)
        await log_in(site, base, account, PlaywrightForm(await context.new_page(), site))
        return list(await context.cookies())
    finally:
        await context.close()


class PlaywrightForm:
    """Playwright's page as `FormPage`.

    Playwright's own messages quote what was typed, so they are not passed on.
    """

    def __init__(self, page: Page, site: str):
        self._page = page
        self._site = site

    @property
    def url(self) -> str:
        """Its address now."""
        return self._page.url

    async def goto(self, url: str) -> None:
        """Opens an address."""
        with self._errors(f"{url} does not open"):
            await self._page.goto(url)

    async def fill(self, element: Element, text: str) -> None:
        """Writes into a field."""
        with self._errors(f"{self.url} has no field with {element.by.value} {element.name!r}"):
            await self._find(element).fill(text)

    async def submit(self, element: Element) -> None:
        """Clicks a button; what it opens has begun to load before the answer."""
        with self._errors(f"{self.url} has no button {element.name!r}, or it leads nowhere"):
            async with self._page.expect_navigation():
                await self._find(element).click()

    async def content(self) -> str:
        """The document as HTML."""
        with self._errors(f"{self.url} has no document"):
            return await self._page.content()

    def _find(self, element: Element) -> Locator:
        if element.by is By.LABEL:
            return self._page.get_by_label(element.name, exact=True)
        if element.by is By.PLACEHOLDER:
            return self._page.get_by_placeholder(element.name)
        if element.by is By.BUTTON:
            return self._page.get_by_role("button", name=element.name)
        return self._page.get_by_test_id(element.name)

    @contextlib.contextmanager
    def _errors(self, message: str) -> Iterator[None]:
        try:
            yield
        except Error as error:
            raise LoginError(f"{self._site}: {message} ({type(error).__name__})") from None
