"""Measures libraries alternately in worker processes and computes ratios within each round.

Each library has a worker (worker.py). If all workers fit into memory together, they stay alive for
all rounds; otherwise each round restarts them. Only one worker runs at any time.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

HERE = pathlib.Path(__file__).parent
# Torch's product library (MKL) uses its slow path on processors that are not Intel's.
_MKL = "int mkl_serv_intel_cpu_true(void) { return 1; }"


@dataclasses.dataclass(frozen=True)
class Contender:
    """Library, worker script and options of one participant of a comparison.

    Attributes:
      name: Name of the library in tables.
      script: `worker_*.py` of this folder, or an absolute path.
      python: Python interpreter of a virtual environment that has the library.
      options: First request to the worker, which configures the measurement.
      environment: Environment variables that the worker gets.
    """

    name: str
    script: str
    python: str
    options: dict[str, Any]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Worker:
    """A running worker process."""

    def __init__(self, contender: Contender, environment: dict[str, str]):
        self.name = contender.name
        self._process = subprocess.Popen(
            [contender.python, str(HERE / contender.script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self.facts = self._ask(contender.options)

    def measure(self) -> dict:
        """Measures one run of the task and returns its record."""
        return self._ask({})

    def close(self) -> None:
        """Ends the worker process."""
        self._process.communicate()

    def _ask(self, request: dict) -> dict:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"{self.name}: the worker ended with status {code}; see above")
        return json.loads(line)


def torch_environment() -> dict[str, str]:
    """Returns environment variables with which torch is fastest on this machine; builds a one-line
    library if it does not exist.
    """
    folder = pathlib.Path("~/.cache/agentgym_jax/benchmarks").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "mkl_fast_path.so"
    if not library.exists():
        command = ["gcc", "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=_MKL, text=True, check=True)
    return {"LD_PRELOAD": str(library), "OMP_WAIT_POLICY": "passive"}


def compare(
    contenders: list[Contender], *, rounds: int, keep_alive: bool
) -> dict[str, dict[str, Any]]:
    """Measures all libraries `rounds` times, alternately.

    Args:
      contenders: Libraries to measure; the first one is the reference.
      rounds: Number of measurements of each library.
      keep_alive: True if all workers stay in memory together.

    Returns:
      Dictionary by name of the library. It has `facts` of the last preparation and `runs`, one
      record per round.
    """
    found: dict[str, dict[str, Any]] = {c.name: dict(facts={}, runs=[]) for c in contenders}
    alive: dict[str, Worker] = {}
    try:
        for i in range(rounds):
            for contender in contenders:
                worker = alive.pop(contender.name, None)
                if worker is None:
                    is_torch = contender.script == "worker_torch.py"
                    variables = torch_environment() if is_torch else {}
                    worker = Worker(contender, variables | contender.environment)
                record = worker.measure()
                found[contender.name]["facts"] = worker.facts
                found[contender.name]["runs"].append(record)
                told = {k: round(v, 3) for k, v in record.items() if isinstance(v, float)}
                sys.stderr.write(f"round {i + 1} of {rounds}, {contender.name}: {told}\n")
                if keep_alive:
                    alive[contender.name] = worker
                else:
                    worker.close()
    finally:
        for worker in alive.values():
            worker.close()
    return found


def median(found: dict[str, dict], name: str, field: str) -> float:
    """Returns the median of a field over the rounds."""
    return statistics.median(run[field] for run in found[name]["runs"])


def ratios(found: dict[str, dict], name: str, other: str, field: str) -> list[float]:
    """Returns `field` of `name` divided by `field` of `other`, for each round."""
    pairs = zip(found[name]["runs"], found[other]["runs"], strict=True)
    return [mine[field] / theirs[field] for mine, theirs in pairs]


def ratio_text(values: list[float]) -> str:
    """Returns the median and range of the values as text."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def write(record: dict, out: str) -> None:
    """Prints one JSON line, and appends it to a file if one is given."""
    record["load_average"] = os.getloadavg()
    record["cores"] = os.cpu_count()
    record["commit"] = os.environ.get("BENCHMARK_COMMIT", "")
    line = json.dumps(record)
    sys.stdout.write(line + "\n")
    if out:
        with open(out, "a") as f:
            f.write(line + "\n")
