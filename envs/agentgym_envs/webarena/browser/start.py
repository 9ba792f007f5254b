"""How an episode begins, as data: nothing of the browser is needed to say it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from agentgym_envs.webarena.recordings import Recording


@dataclasses.dataclass(frozen=True)
class Start:
    """How an episode begins.

    Attributes:
      urls: one for each tab.
      headers: sent with every request.
      cookies: in Playwright's form, for the accounts that are logged in.
      has_calendar: the pages' own calendar begins on the day of the embedded sites.
      is_original: as in WebArena, questions of a page are answered with no instead of yes, and
        the tree has icons and not the values of dates and of closed boxes to choose from.
      recording: of the requests; None: they are not recorded.
    """

    urls: tuple[str, ...]
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cookies: tuple[Mapping[str, Any], ...] = ()
    has_calendar: bool = False
    is_original: bool = False
    recording: Recording | None = None
