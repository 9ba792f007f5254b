"""Four login forms of WebArena's sites: Magento's for customers and administrators, Postmill,
GitLab.

Playwright fills in the forms, in a browser context that is closed afterwards.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from playwright.async_api import Browser, Error, Locator, Page

from agentgym_envs.webarena.deployment import Account

ACTION_SECONDS = 15.0
LABEL, PLACEHOLDER, TEST_ID, BUTTON = "label", "placeholder", "data-testid", "button"


class LoginError(Exception):
    """Error for a failed login. The message names the site but never the account's password."""


@dataclasses.dataclass(frozen=True)
class Element:
    """Field or button of a form, found by its LABEL, PLACEHOLDER or TEST_ID, or as a BUTTON."""

    by: str
    name: str

    def find(self, page: Page) -> Locator:
        """Locates the element in a page."""
        if self.by == LABEL:
            return page.get_by_label(self.name, exact=True)
        if self.by == PLACEHOLDER:
            return page.get_by_placeholder(self.name)
        if self.by == BUTTON:
            return page.get_by_role("button", name=self.name)
        return page.get_by_test_id(self.name)


@dataclasses.dataclass(frozen=True)
class Form:
    """Login form of one application, and the sign of a successful login.

    Attributes:
      path: Path of the form, below the site's base address.
      private_path: Function from the account's name to the path of a page that requires the login.
      private_text: Text of that page; "" if visitors without a login are sent to another address.
    """

    path: str
    username: Element
    password: Element
    button: Element
    private_path: Callable[[str], str]
    private_text: str = ""


FORMS: Mapping[str, Form] = {
    "shopping": Form(
        "/customer/account/login/",
        Element(LABEL, "Email"),
        Element(LABEL, "Password"),
        Element(BUTTON, "Sign In"),
        private_path=lambda username: "/wishlist/",
    ),
    "shopping_admin": Form(
        "",
        Element(PLACEHOLDER, "user name"),
        Element(PLACEHOLDER, "password"),
        Element(BUTTON, "Sign in"),
        private_path=lambda username: "/dashboard",
        private_text="Dashboard",
    ),
    "reddit": Form(
        "/login",
        Element(LABEL, "Username"),
        Element(LABEL, "Password"),
        Element(BUTTON, "Log in"),
        private_path=lambda username: f"/user/{username}/account",
        private_text="Delete",
    ),
    "gitlab": Form(
        "/users/sign_in",
        Element(TEST_ID, "username-field"),
        Element(TEST_ID, "password-field"),
        Element(TEST_ID, "sign-in-button"),
        private_path=lambda username: "/-/profile",
    ),
}


class PlaywrightForm:
    """Page with a form. Each method raises LoginError if it fails.

    Playwright's own messages quote the typed text, so these messages are not passed on.
    """

    def __init__(self, page: Page, site: str):
        self._page = page
        self._site = site

    @property
    def url(self) -> str:
        """Returns the current address of the page."""
        return self._page.url

    async def goto(self, url: str) -> None:
        """Opens an address and waits until it has loaded."""
        with self._errors(f"{url} does not open"):
            await self._page.goto(url)

    async def fill(self, element: Element, text: str) -> None:
        """Writes a text into a field."""
        with self._errors(f"{self.url} has no field with {element.by} {element.name!r}"):
            await element.find(self._page).fill(text)

    async def submit(self, element: Element) -> None:
        """Clicks a button and waits for the navigation to the next page."""
        with self._errors(f"{self.url} has no button {element.name!r}, or it leads nowhere"):
            async with self._page.expect_navigation():
                await element.find(self._page).click()

    async def content(self) -> str:
        """Returns the document as HTML."""
        with self._errors(f"{self.url} has no document"):
            return await self._page.content()

    @contextlib.contextmanager
    def _errors(self, message: str) -> Iterator[None]:
        try:
            yield
        except Error as error:
            raise LoginError(f"{self._site}: {message} ({type(error).__name__})") from None


async def cookies_of(browser: Browser, site: str, base: str, account: Account) -> list[Any]:
    """Logs in an account on a site of FORMS and returns its cookies, in Playwright's form.

    Raises:
      LoginError: The form does not exist, or the account was rejected.
    """
    context = await browser.new_context()
    try:
        context.set_default_timeout(ACTION_SECONDS * 1000)
        form, page = FORMS[site], PlaywrightForm(await context.new_page(), site)
        await page.goto(base + form.path)
        await page.fill(form.username, account.username)
        await page.fill(form.password, account.password)
        await page.submit(form.button)
        if not await is_logged_in(site, base, account, page):
            raise LoginError(
                f"{site}: {account.username} is not logged in after the form at {base}{form.path} "
                "was sent. Check the account in the deployment's file"
            )
        return list(await context.cookies())
    finally:
        await context.close()


async def is_logged_in(site: str, base: str, account: Account, page: PlaywrightForm) -> bool:
    """Returns True if the page's browser context is logged in as the account.

    Raises:
      LoginError: The site does not answer.
    """
    form = FORMS[site]
    private = base + form.private_path(account.username)
    await page.goto(private)
    if form.private_text:
        return form.private_text in await page.content()
    return page.url.rstrip("/") == private.rstrip("/")
