"""Makes `babyai_parts` importable, because pytest's importlib mode adds no folder to the path."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
