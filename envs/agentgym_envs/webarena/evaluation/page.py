"""Interface of a page for the evaluators; a wrapper adapts a browser's page to it."""

from typing import Any, Protocol


class PageError(Exception):
    """Error of a page: a script raised an error, or an address could not be opened."""


class Page(Protocol):
    """One page of a browser after the last action of the agent."""

    @property
    def url(self) -> str:
        """Returns the current address of the page."""

    async def content(self) -> str:
        """Returns the whole document as HTML.

        Raises:
          PageError: The document does not exist any more.
        """

    async def evaluate(self, script: str) -> Any:
        """Returns the result of a JavaScript expression or of a function `() => ..`, as JSON types.

        Raises:
          PageError: The script raised an error.
        """

    async def goto(self, url: str) -> None:
        """Opens `url` and returns when the page has settled.

        Raises:
          PageError: The page does not exist or did not load in time.
        """
