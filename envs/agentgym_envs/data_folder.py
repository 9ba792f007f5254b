"""Folder for data that is built or downloaded on the user's machine."""

import os
import pathlib

VARIABLE = "AGENTGYM_DATA"


def data_folder() -> pathlib.Path:
    """Returns $AGENTGYM_DATA, or else ~/.cache/agentgym. The folder need not exist yet."""
    named = os.environ.get(VARIABLE)
    return pathlib.Path(named) if named else pathlib.Path.home() / ".cache" / "agentgym"
