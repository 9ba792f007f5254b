"""The clock of an episode: pages never depend on the day on which they are looked at.

An episode starts at EPISODE_START and is one second older with each request, so the same actions lead
to the same pages. In a Django process `install()` makes `django.utils.timezone.now`,
`datetime.datetime.now` and `datetime.date.today` tell that time; where no time is set (in a thread
that serves no episode) they tell the real one. `time.time` is left alone: servers measure with it;
Django's signatures, such as those of sessions, get the episode's by `install_in_signatures()`.
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
    """Within it, in this thread, it is this moment.

    Args:
      moment: with a time zone.
    """
    token = _now.set(moment)
    try:
        yield
    finally:
        _now.reset(token)


def episode_time(seconds: int) -> datetime.datetime:
    """The time of an episode after so many requests."""
    return EPISODE_START + datetime.timedelta(seconds=seconds)


class _AnyDatetime(type):
    """Datetimes made elsewhere (by C code) count as instances, too."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, _DATETIME)

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, _DATETIME)


class EpisodeDatetime(datetime.datetime, metaclass=_AnyDatetime):
    """`datetime.datetime` whose present is the episode's."""

    @classmethod
    def now(cls, tz=None):
        """The episode's time; naive times are UTC, as in all our sites."""
        moment = _now.get()
        if moment is None:
            return _DATETIME.now(tz)
        return moment.replace(tzinfo=None) if tz is None else moment.astimezone(tz)

    @classmethod
    def today(cls):
        """`now()` without a time zone."""
        return cls.now()

    @classmethod
    def utcnow(cls):
        """`now()` without a time zone."""
        return cls.now(datetime.UTC).replace(tzinfo=None)


class _AnyDate(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, _DATE)

    def __subclasscheck__(cls, subclass):
        return issubclass(subclass, _DATE)


class EpisodeDate(datetime.date, metaclass=_AnyDate):
    """`datetime.date` whose today is the episode's."""

    @classmethod
    def today(cls):
        """The day of `EpisodeDatetime.now()`."""
        moment = EpisodeDatetime.now()
        return _DATE(moment.year, moment.month, moment.day)


class EpisodeTime:
    """`time` of the standard library whose present is the episode's, as far as signatures need it."""

    @staticmethod
    def time() -> float:
        """Seconds since 1970."""
        return EpisodeDatetime.now(datetime.UTC).timestamp()


def install_in_signatures() -> None:
    """Makes Django's signatures tell the episode's time, so that equal sessions have equal bytes."""
    from django.core import signing

    signing.time = EpisodeTime


def install() -> None:
    """Makes this process tell the episode's time; before anything of Django is imported.

    Raises:
      RuntimeError: Django is loaded, so some of its modules hold the real clock already.
    """
    if "django" in sys.modules:
        raise RuntimeError("clock.install() comes too late: Django has been imported already")
    datetime.datetime = EpisodeDatetime  # type: ignore[misc]
    datetime.date = EpisodeDate  # type: ignore[misc]
