"""Environment servers behind one HTTP protocol."""

import os

# minigrid imports pygame, which prints a greeting to stdout unless this is set first.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

__version__ = "0.1.0"
