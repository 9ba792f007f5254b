"""Makes the shared modules of this folder importable for its tests."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
