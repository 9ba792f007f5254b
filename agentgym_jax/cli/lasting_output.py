"""Standard streams that outlive their terminal or the reader of their pipe.

Otherwise a closed terminal, `| head`, or a full disk behind `> log` would end a run at its next line.
"""

import io
import sys
from typing import Any


class _LastingFile(io.FileIO):
    def write(self, data: Any) -> int | None:
        """Writes bytes; if nobody can get them any more, drops them."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def install() -> None:
    """Replaces `sys.stdout` and `sys.stderr`; for programs, before they write."""
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        file = io.BufferedWriter(_LastingFile(old.fileno(), "w", closefd=False))
        new = io.TextIOWrapper(
            file, old.encoding, old.errors, line_buffering=old.line_buffering or name == "stderr"
        )
        setattr(sys, name, new)
