"""Clock of an episode. Pages do not depend on the day on which they are requested.

An episode starts at EPISODE_START and is one second older with each request, so the same actions
lead to the same pages. In a Django process `install()` makes `django.utils.timezone.now`,
`datetime.datetime.now` and `datetime.date.today` return the episode's time. Threads that serve no
episode get the real time. `time.time` is unchanged, because servers measure durations with it.
`install_in_signatures()` also sets the timestamps that Django adds when it signs session data.
"""

import contextlib
import contextvars
import datetime
import sys
from collections.abc import Iterator

EPISODE_START = datetime.datetime(2024, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)

_DATETIME = datetime.datetime
_DATE = datetime.date
_now: contextvars.ContextVar[datetime.datetime | None] = contextvars.ContextVar(
    "episode_now", default=None
)


@contextlib.contextmanager
def at(moment: datetime.datetime) -> Iterator[None]:
    """Sets the time of this thread to `moment` while the context is open."""
    token = _now.set(moment)
    try:
        yield
    finally:
        _now.reset(token)


def episode_time(seconds: int) -> datetime.datetime:
    """Returns the time of an episode after `seconds` requests."""
    return EPISODE_START + datetime.timedelta(seconds=seconds)


class _AnyDatetime(type):
    """Metaclass with which `isinstance` accepts datetimes of the original class, for example from C
    code.
    """

    def __instancecheck__(cls, instance):
        return isinstance(instance, _DATETIME)

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, _DATETIME)


class EpisodeDatetime(datetime.datetime, metaclass=_AnyDatetime):
    """`datetime.datetime` whose `now` is the episode's time."""

    @classmethod
    def now(cls, tz=None):
        """Returns the episode's time; times without a time zone are in UTC, as in all our sites."""
        moment = _now.get()
        if moment is None:
            return _DATETIME.now(tz)
        return moment.replace(tzinfo=None) if tz is None else moment.astimezone(tz)

    @classmethod
    def today(cls):
        """Returns the episode's time without a time zone."""
        return cls.now()

    @classmethod
    def utcnow(cls):
        """Returns the time in UTC without a time zone."""
        return cls.now(datetime.UTC).replace(tzinfo=None)


class _AnyDate(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, _DATE)

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, _DATE)


class EpisodeDate(datetime.date, metaclass=_AnyDate):
    """`datetime.date` whose `today` is the episode's day."""

    @classmethod
    def today(cls):
        """Returns the day of `EpisodeDatetime.now()`."""
        moment = EpisodeDatetime.now()
        return _DATE(moment.year, moment.month, moment.day)


class EpisodeTime:
    """Replacement of the module `time` in `django.core.signing`, which uses only `time.time`."""

    @staticmethod
    def time() -> float:
        """Returns the episode's time in seconds since 1970."""
        return EpisodeDatetime.now(datetime.UTC).timestamp()


def install_in_signatures() -> None:
    """Makes Django sign with the episode's time, so that equal session data have equal bytes."""
    from django.core import signing

    signing.time = EpisodeTime


def install() -> None:
    """Makes this process use the episode's time. Call this before Django is imported.

    Raises:
      RuntimeError: Django is already imported, so some of its modules already use the real clock.
    """
    if "django" in sys.modules:
        raise RuntimeError("clock.install() is too late: Django has been imported already")
    datetime.datetime = EpisodeDatetime  # type: ignore[misc]
    datetime.date = EpisodeDate  # type: ignore[misc]
