"""Trac's present: `install()` makes it the episode's, before anything of Trac is imported."""

import sys
import warnings

from agentgym_envs.webarena.sites import clock


def install() -> None:
    """Replaces the clocks that Trac's modules read.

    Raises:
      RuntimeError: Trac is loaded, so some of its modules hold the real clock already.
    """
    if "trac" in sys.modules:
        raise RuntimeError("present.install() comes too late: Trac has been imported already")
    clock.install()
    # It is said at each start, and to nobody who could change it.
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    import trac.util
    from trac.util import datefmt

    # The other modules take their `time_now` from datefmt; trac.util already has.
    trac.util.time_now = datefmt.time_now = clock.EpisodeTime.time
