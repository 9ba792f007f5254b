r"""Counts the programs that a second start of a run still compiles, and measures the time of both
starts to the first step.

  PYTHONPATH=. python experiments/benchmarks/compilation.py

Runs `python -m agentgym_jax.train` in fresh processes that share one cache folder. The folder is
empty before the first start (cold) and filled before the second (warm). Every start has a separate
run folder, so nothing is resumed. Fields of a start:

- `programs`: programs that the whole process, plots included, looked up in the cache.
- `compiled`: programs that were not in the cache. The target of the warm start is 0; otherwise
  their names are printed.
- `refused`: programs of `compiled` that JAX did not write to the cache; its reasons are printed.
- `compile_s`: seconds in XLA until the end of the first step, reads of the cache included
  (`jax/compile_s` of metrics.jsonl, agentgym_jax/telemetry/machine.py).
- `first_step_s`: from the start of the process to the line of step 1 in metrics.jsonl: imports,
  environments, warm start, evaluation before the first step and the step itself.
- `whole_s`: to the end of the process.

The default is a smoke config with few and short phases. Its random policy never succeeds. Without
the entropy bonus that is added here, nothing would be learned and half of the programs would not be
compiled. The counts are read from JAX's log messages about its cache; the logging costs both starts
the same time.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import side_by_side
from absl import app, flags

_CONFIG = flags.DEFINE_string("config", "configs/quickstart.py:smoke", "Config of the runs.")
_OVERRIDES = flags.DEFINE_multi_string(
    "override",
    ["algorithm.entropy_coef=1e-3", "learner.min_informative_groups=0"],
    "Override of a config value, such as model.dtype=bfloat16; repeatable.",
)
_WARM = flags.DEFINE_integer("warm", 1, "Number of starts with a filled cache.")
_OUT = flags.DEFINE_string("out", "", "File that the JSON line is appended to.")

_LOGGED = ("jax._src.compiler", "jax._src.compilation_cache")
_HIT = re.compile(r"Persistent compilation cache hit for '([^']*)'")
_MISS = re.compile(r"PERSISTENT COMPILATION CACHE MISS for '([^']*)'")
_REFUSED = re.compile(r"Not writing persistent cache entry (?:for '([^']*)' )?(.*)")
# parts of a message that differ between refusals of one reason
_NUMBERS = re.compile(r"\([\d.]+s\)|key '[^']*'")


def train(cache: pathlib.Path, workdir: pathlib.Path) -> tuple[float, float, str]:
    """Runs the training job; returns its start time, its duration in seconds and its log."""
    command = [sys.executable, "-m", "agentgym_jax.train", f"--config={_CONFIG.value}"]
    command += [f"--workdir={workdir}", f"--compilation_cache={cache}"]
    command += [f"--config.{override}" for override in _OVERRIDES.value]
    environment = os.environ | {"JAX_DEBUG_LOG_MODULES": ",".join(_LOGGED)}
    clock, started = time.time(), time.perf_counter()
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        status = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=log, env=environment
        ).returncode
        seconds = time.perf_counter() - started
        log.seek(0)
        text = log.read()
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with status {status}:\n{text[-4000:]}")
    return clock, seconds, text


def measured(cache: pathlib.Path, workdir: pathlib.Path) -> dict:
    """Measures one start of the training job and returns its record."""
    clock, whole_s, log = train(cache, workdir)
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line["step"] == 1)
    missed = collections.Counter(_MISS.findall(log))
    hits = len(_HIT.findall(log))
    refused = collections.Counter(
        _NUMBERS.sub("", reason).strip() for _, reason in _REFUSED.findall(log)
    )
    return dict(
        programs=hits + missed.total(),
        compiled=missed.total(),
        compiled_names=dict(missed.most_common()),
        refused=refused.total(),
        reasons=dict(refused.most_common()),
        compile_s=first["jax/compile_s"],
        compilations_by_step=[line["jax/compilations"] for line in lines],
        first_step_s=first["time"] - clock,
        whole_s=whole_s,
    )


def files_of(cache: pathlib.Path) -> dict:
    """Returns the number of files in the cache and their total size."""
    sizes = [path.stat().st_size for path in cache.rglob("*") if path.is_file()]
    return dict(files=len(sizes), mib=sum(sizes) / 2**20)


def show(name: str, record: dict) -> None:
    """Prints one line of the table and the names of the programs that a warm start compiled."""
    sys.stderr.write(
        f"{name:6} {record['programs']:8} {record['compiled']:9} {record['refused']:8} "
        f"{record['compile_s']:10.2f} {record['first_step_s']:13.1f} {record['whole_s']:8.1f}\n"
    )
    if name != "cold":
        for program, count in record["compiled_names"].items():
            sys.stderr.write(f"       compiled {count} x {program}\n")
    for reason, count in record["reasons"].items():
        sys.stderr.write(f"       not written, {count} x: {reason}\n")


def main(_: list[str]) -> None:
    """Prints one JSON line and a table."""
    starts = {}
    sys.stderr.write("start  programs  compiled  refused  compile_s  first_step_s  whole_s\n")
    with tempfile.TemporaryDirectory() as folder:
        cache = pathlib.Path(folder) / "cache"
        for i in range(1 + _WARM.value):
            name = f"warm{i if _WARM.value > 1 else ''}" if i else "cold"
            starts[name] = measured(cache, pathlib.Path(folder) / name)
            show(name, starts[name])
        size = files_of(cache)
    sys.stderr.write(f"cache: {size['files']} files, {size['mib']:.1f} MiB\n")
    side_by_side.write(
        dict(benchmark="compilation", config=_CONFIG.value, cache=size, **starts), _OUT.value
    )


if __name__ == "__main__":
    app.run(main)
