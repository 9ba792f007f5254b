"""BabyAI: instruction following in a grid of rooms, as text."""

import warnings

# of pygame, which minigrid imports
warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)
