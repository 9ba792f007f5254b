"""What the evaluators need of a page; a browser's page is wrapped to fit."""

from typing import Any, Protocol


class PageError(Exception):
    """The page cannot do what was asked: a script raised, an address could not be opened."""


class Page(Protocol):
    """One page of a browser, at the state in which the agent left it."""

    @property
    def url(self) -> str:
        """Its address now."""
        ...

    async def content(self) -> str:
        """The whole document as HTML.

        Raises:
          PageError: there is no document any more.
        """
        ...

    async def evaluate(self, script: str) -> Any:
        """Result of a JavaScript expression or of a function `() => ..`, as JSON types.

        Raises:
          PageError: the script raised.
        """
        ...

    async def goto(self, url: str) -> None:
        """Opens `url` and returns when the page has settled.

        Raises:
          PageError: there is no such page or it did not come in time.
        """
        ...
