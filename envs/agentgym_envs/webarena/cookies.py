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

MARGIN_SECONDS = 45 * 60.0  # that a cookie must still be good for
# A session of the browser's has no end of its own; the server forgets it some day.
MAX_AGE_SECONDS = 4 * 3600.0
# Shorter ones have nothing to do with being logged in.
MIN_LIFETIME_SECONDS = 600.0


class CookieFolder:
    """One file per site, `<site>_state.json` in the form of Playwright's storage state.

    Several processes may use it: one of them logs in, the others wait and read.

    Args:
      folder: made if it is not there; for its owner alone.
      log_in: logs in on a site and returns the cookies.
    """

    def __init__(self, folder: pathlib.Path, log_in: Callable[[str], Sequence[Any]]):
        self._folder = folder
        self._log_in = log_in

    def of(self, site: str) -> list[Any]:
        """The cookies of the site's account; new ones if the old ones expire soon.

        Raises:
          LoginError: whatever `log_in` raises.
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
    """Whether all cookies will be good for a while.

    That is MARGIN_SECONDS, or half of the time that a cookie is good for if that is less.

    Args:
      cookies: in Playwright's form: `expires` in seconds, -1 for the end of the browser's session.
      saved_at: when they were new, in seconds.
      now: in seconds.
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
    """The cookies of a file; None if there are none that can be used."""
    try:
        saved_at = path.stat().st_mtime
        cookies = json.loads(path.read_text(encoding="utf-8"))["cookies"]
        return cookies if are_fresh(cookies, saved_at, time.time()) else None
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None  # a file that is none is replaced


def _write(path: pathlib.Path, state: dict[str, Any]) -> None:
    """Replaces a file at once; NamedTemporaryFile makes it readable for its owner alone."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8"
    ) as file:
        json.dump(state, file)
    os.replace(file.name, path)


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Keeps other processes out; the lock is gone with the process that holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
