"""Imitates a training process in tests of the runner: python stand_in.py FOLDER STEPS DELAY_S

It keeps the contract of a run folder (lock, one metrics line and one checkpoint per step, stop with
status 143 after SIGTERM) and appends the steps that it computes to computed.txt.
"""

import fcntl
import json
import os
import pathlib
import signal
import sys
import time

folder, total_steps, delay = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
lock = open(folder / ".lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit("in use by another process")
stops = []
signal.signal(signal.SIGTERM, lambda number, frame: stops.append(number))
if "broken" in folder.name:
    sys.exit("first line\nthe reason of the failure")
(folder / "cores.json").write_text(json.dumps(sorted(os.sched_getaffinity(0))))
saved = folder / "checkpoints"
first = max((int(p.name) for p in saved.glob("*")), default=0)
for step in range(first + 1, total_steps + 1):
    if stops:
        sys.exit(143)
    time.sleep(delay)
    with open(folder / "computed.txt", "a") as file:
        file.write(f"{step}\n")
    with open(folder / "metrics.jsonl", "a") as file:
        line = {"step": step, "time": time.time(), "sft/loss": 1.0 / step, "sft/tokens": 10.0}
        file.write(json.dumps(line) + "\n")
    part = saved / f"{step}"
    part.mkdir(parents=True)
    (part / "digests.json").write_text("{}")
