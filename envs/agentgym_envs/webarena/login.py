"""The four login forms of WebArena's sites: Magento's for customers and administrators, Postmill, GitLab."""

import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Protocol

from agentgym_envs.webarena.deployment import Account


class LoginError(Exception):
    """Nobody is logged in now; the message names the site and never the account's password."""


class By(enum.Enum):
    """How an element of a form is found."""

    LABEL = "label"
    PLACEHOLDER = "placeholder"
    TEST_ID = "data-testid"
    BUTTON = "button"


@dataclasses.dataclass(frozen=True)
class Element:
    """A field or a button of a form."""

    by: By
    name: str


class FormPage(Protocol):
    """What logging in needs of a page. Each method raises LoginError if it cannot."""

    @property
    def url(self) -> str:
        """Its address now."""
        ...

    async def goto(self, url: str) -> None:
        """Opens an address and waits until it has loaded."""
        ...

    async def fill(self, element: Element, text: str) -> None:
        """Writes into a field."""
        ...

    async def submit(self, element: Element) -> None:
        """Clicks a button and waits until what it opens has loaded."""
        ...

    async def content(self) -> str:
        """The document as HTML."""
        ...


@dataclasses.dataclass(frozen=True)
class Form:
    """How one application logs people in, and how to see that somebody is.

    Attributes:
      path: of the form, below the site's base address.
      username: field.
      password: field.
      button: that sends the form.
      private_path: from the name of the account, a page that strangers do not get.
      private_text: is on that page; "" if strangers are sent to another address instead.
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
        Element(By.LABEL, "Email"),
        Element(By.LABEL, "Password"),
        Element(By.BUTTON, "Sign In"),
        private_path=lambda username: "/wishlist/",
    ),
    "shopping_admin": Form(
        "",
        Element(By.PLACEHOLDER, "user name"),
        Element(By.PLACEHOLDER, "password"),
        Element(By.BUTTON, "Sign in"),
        private_path=lambda username: "/dashboard",
        private_text="Dashboard",
    ),
    "reddit": Form(
        "/login",
        Element(By.LABEL, "Username"),
        Element(By.LABEL, "Password"),
        Element(By.BUTTON, "Log in"),
        private_path=lambda username: f"/user/{username}/account",
        private_text="Delete",
    ),
    "gitlab": Form(
        "/users/sign_in",
        Element(By.TEST_ID, "username-field"),
        Element(By.TEST_ID, "password-field"),
        Element(By.TEST_ID, "sign-in-button"),
        private_path=lambda username: "/-/profile",
    ),
}


async def log_in(site: str, base: str, account: Account, page: FormPage) -> None:
    """Logs an account in; the cookies of the page's context are those of the account then.

    Args:
      site: key of FORMS.
      base: address of the site.
      account: whose.
      page: of a context without cookies.

    Raises:
      LoginError: the form is not there or the account was refused.
    """
    form = FORMS[site]
    await page.goto(base + form.path)
    await page.fill(form.username, account.username)
    await page.fill(form.password, account.password)
    await page.submit(form.button)
    if not await is_logged_in(site, base, account, page):
        raise LoginError(
            f"{site}: {account.username} is not logged in after the form at {base}{form.path} was "
            "sent. Check the account in the deployment's file"
        )


async def is_logged_in(site: str, base: str, account: Account, page: FormPage) -> bool:
    """Whether the page's cookies are those of the account.

    Raises:
      LoginError: the site does not answer.
    """
    form = FORMS[site]
    private = base + form.private_path(account.username)
    await page.goto(private)
    if form.private_text:
        return form.private_text in await page.content()
    return page.url.rstrip("/") == private.rstrip("/")
