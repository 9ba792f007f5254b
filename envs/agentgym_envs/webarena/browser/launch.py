"""Chromium as a child process: finding it, starting it, and noticing its end."""

import asyncio
import contextlib
import functools
import importlib.util
import logging
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentgym_envs.base import extras
from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena.browser import temporary
from agentgym_envs.webarena.browser.errors import BrowserLost
from agentgym_envs.webarena.browser.reach import Reach

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

_LOGGER = logging.getLogger(__name__)

CHROMIUM_VARIABLE = "AGENTGYM_CHROMIUM"
# The only supported browser, because observations depend on it. Debian's full chromium requests
# favicons, has other text boxes in its accessibility tree and takes twice the memory.
SUPPORTED = "chromium-headless-shell"
PLAYWRIGHT_HINT = f"Install it with: {extras.install('web')}"
CHROMIUM_HINT = (
    "Install it (Debian: apt-get install chromium-headless-shell) or name the program in "
    f"{CHROMIUM_VARIABLE}."
)
_VERSION_SECONDS = 30.0  # limit for a browser to print its version

_FLAGS = (
    "--no-sandbox",  # containers rarely allow the sandbox, and the sites are trusted
    "--disable-gpu",
    "--disable-quic",
    "--disable-smooth-scrolling",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-pings",
    # Peer-to-peer connections use numeric addresses, so they cannot be blocked by name.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)
_START_SECONDS = 30.0
# maximum wait for Playwright's `disconnected` event, which arrives after the errors of the pages
_NEWS_SECONDS = 1.0
_BEAT = 0.01


def find_chromium(environ: Mapping[str, str]) -> str:
    """Returns the path of the browser: AGENTGYM_CHROMIUM if that is set, else SUPPORTED on PATH.

    Raises:
      SetupError: The browser was not found.
    """
    named = environ.get(CHROMIUM_VARIABLE, "")
    found = shutil.which(named or SUPPORTED, path=environ.get("PATH", ""))
    if found is not None:
        return found
    if named:
        problem = f"{CHROMIUM_VARIABLE} is {named}, which is no program"
    else:
        problem = f"PATH has no {SUPPORTED}"
    raise SetupError(f"webarena: {problem}. {CHROMIUM_HINT}")


@functools.cache
def browser_name(executable: str) -> str:
    """Returns the name and version of a browser, for example "chromium-headless-shell
    156.0.8078.79".

    Raises:
      SetupError: The program does not print a version.
    """
    try:
        printed = subprocess.run(
            [executable, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"webarena: {executable} --version failed: {error}") from error
    version = re.search(r"\d+(?:\.\d+)+", printed)
    if version is None:
        raise SetupError(
            f"webarena: {executable} --version prints {printed.strip()[:80]!r}, expected the "
            f"version of a Chromium. {CHROMIUM_HINT}"
        )
    name = pathlib.Path(executable).name
    if name != SUPPORTED:
        _LOGGER.warning(
            "webarena: %s is not %s: pages may look different and results are not comparable",
            executable,
            SUPPORTED,
        )
    return f"{name} {version[0]}"


def require_browser(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the path of the browser after a check that Playwright is installed as well.

    Raises:
      SetupError: Playwright or the browser is missing; the message says what to install.
    """
    if importlib.util.find_spec("playwright") is None:
        raise SetupError(f"webarena: the Python package playwright is missing. {PLAYWRIGHT_HINT}")
    return find_chromium(environ)


async def check_connected(browser: "Browser", cause: BaseException) -> None:
    """Raises an error if the browser is dead; returns if only the page failed.

    Raises:
      BrowserLost: The browser is gone.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + _NEWS_SECONDS
    while browser.is_connected() and "closed" in str(cause) and clock() < deadline:
        await asyncio.sleep(_BEAT)
    if not browser.is_connected():
        raise BrowserLost("the browser process is gone") from cause


class Chromium:
    """Running browser."""

    def __init__(self, playwright: "Playwright", browser: "Browser", folder: pathlib.Path):
        self._playwright = playwright
        self._folder = folder
        self.browser = browser

    @classmethod
    async def start(cls, executable: str, reach: Reach) -> "Chromium":
        """Starts a browser that can open only the servers of `reach`.

        Raises:
          SetupError: The browser does not start.
        """
        # Playwright is imported here, because this environment is also listed on machines without
        # the extra.
        from playwright.async_api import Error, async_playwright

        folder = temporary.new_folder()
        with temporary.used_for_temporary_files(folder):
            playwright = await async_playwright().start()
        try:
            browser = await playwright.chromium.launch(
                executable_path=executable,
                headless=True,
                args=[*_FLAGS, f"--host-resolver-rules={reach.resolver_rules()}"],
                # The process that owns the browser decides when to stop it.
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
                timeout=_START_SECONDS * 1000,
            )
        except Error as error:
            await playwright.stop()
            shutil.rmtree(folder, ignore_errors=True)
            raise SetupError(
                f"webarena: {executable} does not start: {str(error).strip()[:500]}. "
                f"{CHROMIUM_HINT}"
            ) from error
        return cls(playwright, browser, folder)

    @property
    def is_running(self) -> bool:
        """Returns True if the browser process exists."""
        return self.browser.is_connected()

    async def new_context(self, **options: Any) -> Any:
        """Opens a separate context with the cookies, cache and tabs of one episode.

        Raises:
          BrowserLost: The browser is gone.
        """
        from playwright.async_api import Error

        try:
            return await self.browser.new_context(**options)
        except Error as error:
            await check_connected(self.browser, error)
            raise

    async def stop(self) -> None:
        """Stops the browser and its driver."""
        from playwright.async_api import Error

        with contextlib.suppress(Error):  # the browser process could be gone already
            await self.browser.close()
        await self._playwright.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
