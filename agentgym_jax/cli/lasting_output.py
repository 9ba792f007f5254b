"""Standard streams that take any text and outlive their terminal or the reader of their pipe.

Otherwise a closed terminal, `| head`, a full disk behind `> log`, or a character outside the encoding
of the locale would end a run at its next line.
"""

import io
import logging
import os
import sys
from typing import Any

from absl.logging import get_absl_handler


class _LastingFile(io.FileIO):
    def write(self, data: Any, /) -> int:
        """Writes bytes, or drops them if the reader is gone or the disk is full."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def install() -> None:
    """Replaces `sys.stdout` and `sys.stderr`; for programs, before they write."""
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        if old is None:  # closed by `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
            continue
        if not isinstance(old, io.TextIOWrapper):  # a notebook's
            continue
        file = io.BufferedWriter(_LastingFile(old.fileno(), "w", closefd=False))
        new = io.TextIOWrapper(
            file,
            old.encoding,
            "backslashreplace",
            line_buffering=old.line_buffering or old.write_through or name == "stderr",
        )
        setattr(sys, name, new)
        for handler in (*logging.getLogger().handlers, get_absl_handler().python_handler):
            if isinstance(handler, logging.StreamHandler) and handler.stream is old:
                handler.setStream(new)
