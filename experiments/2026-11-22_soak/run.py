r"""Runs config.py for 2,000 steps and measures the growth of memory.

  nice python experiments/2026-11-22_soak/run.py --workdir=runs/soak

A second call resumes the run; for a finished run it only reads the metrics. Writes results.jsonl
and memory.png.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import matplotlib
import numpy as np

from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.telemetry.metrics_file import read_metrics

HERE = pathlib.Path(__file__).parent
SETTLED = 500  # steps until caches, pools and the allocator have reached their final size
MIB = 1024.0  # MiB per GiB
MEMORY = {
    "training process": "system/host_memory_gib",
    "environment server": "system/child_memory_gib",
    "live arrays": "system/device_memory_gib",
}
COUNTS = ("system/open_sessions", "system/threads", "system/open_files", "jax/compilations")
EVERY = 10  # steps between two lines of results.jsonl


def slopes(lines: list[dict], name: str) -> tuple[float, float]:
    """Returns the least-squares slope of a number per 1,000 steps after SETTLED, and its standard
    error.
    """
    found = [(x["step"], x[name]) for x in lines if x["step"] >= SETTLED]
    steps, values = np.array(found).T
    (slope, _), covariance = np.polyfit(steps, values, 1, cov=True)
    return 1000 * slope, 1000 * float(np.sqrt(covariance[0, 0]))


def draw(lines: list[dict]) -> None:
    """Draws memory against steps and writes memory.png."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(MEMORY), 1, sharex=True, figsize=(7, 6))
    for axis, (label, name) in zip(axes, MEMORY.items(), strict=True):
        axis.plot([x["step"] for x in lines], [MIB * x[name] for x in lines])
        axis.set_ylabel(f"{label}, MiB")
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("step")
    figure.tight_layout()
    figure.savefig(HERE / "memory.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "agentgym_jax.train", f"--workdir={arguments.workdir}"]
    command.append(f"--config={HERE / 'config.py'}:steps={arguments.steps}")
    subprocess.run(command, check=True)
    lines = read_metrics(RunFolder(arguments.workdir).metrics_path)
    names = ("step", *MEMORY.values(), *COUNTS)
    with open(HERE / "results.jsonl", "w") as file:
        for line in lines:
            if line["step"] % EVERY == 0 or line["step"] == 1:
                file.write(json.dumps({name: line[name] for name in names}) + "\n")
    draw(lines)
    for name in (*MEMORY.values(), *COUNTS):
        slope, error = slopes(lines, name)
        unit = "MiB" if name in MEMORY.values() else ""
        scale = MIB if unit else 1.0
        ends = [scale * x[name] for x in lines if x["step"] in (1, SETTLED, arguments.steps)]
        row = [*(f"{x:10.2f}" for x in ends), f"{scale * slope:8.3f} +- {scale * error:.3f}"]
        sys.stdout.write(f"{name:28}{'  '.join(row)} {unit} per 1,000 steps\n")


if __name__ == "__main__":
    main()
