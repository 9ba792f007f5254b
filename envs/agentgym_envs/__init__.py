"""Environment servers behind one HTTP protocol."""

import os

# pygame, which minigrid imports, greets on stdout unless this is set before its import.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

__version__ = "0.1.0"
