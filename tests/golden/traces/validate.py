"""Validates atif.json and training_trace.json in a folder with the packages of the formats.

python validate.py FOLDER        (needs openenv 0.10 and atif)
"""

import json
import pathlib
import sys

from atif import Trajectory
from openenv.core.harness.training import TrainingTrace

folder = pathlib.Path(sys.argv[1])
Trajectory.model_validate(json.loads((folder / "atif.json").read_text()))
TrainingTrace.model_validate(json.loads((folder / "training_trace.json").read_text()))
