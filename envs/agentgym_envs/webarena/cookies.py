"""Cookies of the accounts of a deployment, kept in files and renewed before they expire."""

import contextlib
import fcntl
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

MARGIN_SECONDS = 45 * 60.0  # minimum remaining validity of a cookie, in seconds
# A session cookie has no expiry time, but the server ends the login session eventually.
MAX_AGE_SECONDS = 4 * 3600.0
# Cookies with a shorter lifetime are unrelated to the login.
MIN_LIFETIME_SECONDS = 600.0


class CookieFolder:
    """Folder with one file per site, `<site>_state.json` in the form of Playwright's storage state.

    Several processes can use the folder: one of them logs in, the others wait and read its file.

    Args:
      folder: Folder of the files; made if it is missing, with access for its owner only.
      log_in: Function that logs in on a site and returns the cookies.
    """

    def __init__(self, folder: pathlib.Path, log_in: Callable[[str], Sequence[Any]]):
        self._folder = folder
        self._log_in = log_in

    def get(self, site: str) -> list[Any]:
        """Returns the cookies of the site's account; logs in again if the old cookies expire soon.

        Raises:
          LoginError: `log_in` raised an error.
        """
        path = self._folder / f"{site}_state.json"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self._folder / f"{site}.lock"):
            cookies = _read(path)
            if cookies is None:
                cookies = list(self._log_in(site))
                _write(path, {"cookies": cookies, "origins": []})
            return cookies


def are_fresh(cookies: Sequence[Any], saved_at: float, now: float) -> bool:
    """Returns True if no cookie expires soon.

    A cookie must stay valid for MARGIN_SECONDS, or for half of its lifetime if that is less.
    """
    if now - saved_at > MAX_AGE_SECONDS:
        return False
    lifetimes = [(c["expires"] - saved_at, c["expires"] - now) for c in cookies if c["expires"] > 0]
    return all(
        left >= min(MARGIN_SECONDS, lifetime / 2)
        for lifetime, left in lifetimes
        if lifetime >= MIN_LIFETIME_SECONDS
    )


def _read(path: pathlib.Path) -> list[Any] | None:
    """Returns the cookies of a file; None if there are no usable cookies."""
    try:
        saved_at = path.stat().st_mtime
        cookies = json.loads(path.read_text(encoding="utf-8"))["cookies"]
        return cookies if are_fresh(cookies, saved_at, time.time()) else None
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None  # a missing or invalid file is replaced later


def _write(path: pathlib.Path, state: dict[str, Any]) -> None:
    """Replaces a file atomically; NamedTemporaryFile makes the file readable for its owner only."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8"
    ) as file:
        json.dump(state, file)
    os.replace(file.name, path)


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Locks out other processes while the context is open, at most until this process ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
