"""Settings at the start of an episode. Creating them requires no browser."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from agentgym_envs.webarena.recordings import Recording


@dataclasses.dataclass(frozen=True)
class Start:
    """Settings at the start of an episode.

    Attributes:
      cookies: Cookies of the logged-in accounts, in Playwright's form.
      has_calendar: True if `Date` in pages follows the clock of the embedded sites.
      is_original: True for WebArena's behaviour. Confirmation dialogs are answered with no instead
        of yes. The accessibility tree keeps icon characters and omits the values of date fields and
        closed select boxes.
    """

    urls: tuple[str, ...]
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cookies: tuple[Mapping[str, Any], ...] = ()
    has_calendar: bool = False
    is_original: bool = False
    recording: Recording | None = None
