"""Makes Trac use the episode's time. Call `install()` before any module of Trac is imported."""

import contextlib
import sys
import warnings

from agentgym_sites import clock


def install() -> None:
    """Replaces the clocks that Trac's modules read.

    Raises:
      RuntimeError: Trac is already imported, so some of its modules already use the real clock.
    """
    if "trac" in sys.modules:
        raise RuntimeError("present.install() is too late: Trac has been imported already")
    clock.install()
    # Trac causes this warning at each start, but readers of the log cannot act on it.
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    _hide_other_multipart()
    import trac.util
    from trac.util import datefmt

    # Modules that are imported later take `time_now` from datefmt; trac.util has its own reference.
    trac.util.time_now = datefmt.time_now = clock.EpisodeTime.time


def _hide_other_multipart() -> None:
    """Hides the package python-multipart, which has the name of the one that Trac uses if it is there."""
    with contextlib.suppress(ImportError):
        import multipart

        if not hasattr(multipart, "parse_form_data"):
            sys.modules["multipart"] = None  # type: ignore[assignment]  # an import then fails
