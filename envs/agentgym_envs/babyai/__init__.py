"""BabyAI: instruction following in a grid of rooms, told and played in text."""

import os

# pygame, which minigrid imports, greets on stdout unless this is set before its import.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
