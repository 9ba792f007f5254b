"""Makes the helpers of this folder importable. Pytest's importlib mode adds no folder to the path."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
