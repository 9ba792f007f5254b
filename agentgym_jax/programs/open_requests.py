"""Open chat requests of an agent program, and the time that they wait for newer weights."""

import time


class OpenRequests:
    """Open requests of an episode by name; the episode holds its lock in all calls.

    The episode waits while it has open requests and all of them need newer weights than those of
    `set_version`.

    Attributes:
      started: Time of the start, `time.perf_counter()`.
    """

    def __init__(self) -> None:
        """Starts the clock, without requests and without a version."""
        self.started = time.perf_counter()
        self._needed: dict[str, int | None] = {}  # version of the weights that each request needs
        self._overlapping: set[str] = set()  # names of requests that were open with others
        self._version: int | None = None
        self._waiting_since: float | None = None
        self._waited_s = 0.0

    @property
    def names(self) -> list[str]:
        """Names of the open requests."""
        return list(self._needed)

    @property
    def is_waiting(self) -> bool:
        """True if all open requests wait for newer weights."""
        return self._waiting_since is not None

    @property
    def active_s(self) -> float:
        """Seconds since the start without those of waiting."""
        now = time.perf_counter() if self._waiting_since is None else self._waiting_since
        return now - self.started - self._waited_s

    def add(self, name: str, version: int | None) -> None:
        """Adds a request, which needs weights of a version; None for any."""
        if self._needed:
            self._overlapping |= {name, *self._needed}
        self._needed[name] = version
        self._update_clock()

    def remove(self, name: str) -> None:
        """Removes a finished request."""
        self._needed.pop(name, None)
        self._update_clock()

    def set_version(self, version: int | None) -> None:
        """Sets the version of the present weights; None if no request has a version."""
        self._version = version
        self._update_clock()

    def overlaps(self, name: str) -> bool:
        """Returns True if others were open with a request, or are open now."""
        return name in self._overlapping or len(self._needed) > (name in self._needed)

    def _update_clock(self) -> None:
        now = time.perf_counter()
        if self._waiting_since is not None:
            self._waited_s += now - self._waiting_since
        is_waiting = bool(self._needed) and all(
            version is not None and self._version is not None and version > self._version
            for version in self._needed.values()
        )
        self._waiting_since = now if is_waiting else None
