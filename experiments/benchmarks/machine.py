"""Measures the limits of this machine, from which the benchmarks compute fractions."""

import json
import os
import pathlib

import side_by_side


def limits(python: str, torch_python: str) -> dict:
    """Returns the best measured `read_gbs` and `matmul_gflops` by dtype, and the measurements of
    each library.

    The file in the environment variable BENCHMARK_LIMITS, if any, keeps them for later commands.
    """
    kept = pathlib.Path(os.environ.get("BENCHMARK_LIMITS", os.devnull))
    known = json.loads(kept.read_text()) if kept.is_file() else {}
    if torch_python not in known:
        known[torch_python] = _measure(python, torch_python)
        kept.write_text(json.dumps(known))
    return known[torch_python]


def _measure(python: str, torch_python: str) -> dict:
    options = {"task": "roofline"}
    contenders = [side_by_side.Contender("jax", "worker_ours.py", python, options)]
    if torch_python:
        contenders.append(side_by_side.Contender("torch", "worker_torch.py", torch_python, options))
    found = side_by_side.compare(contenders, rounds=1, keep_alive=False)
    runs = {name: record["runs"][0] for name, record in found.items()}
    best = {
        dtype: max(run["matmul_gflops"][dtype] for run in runs.values())
        for dtype in ("float32", "bfloat16")
    }
    return dict(read_gbs=runs["jax"]["read_gbs"], matmul_gflops=best, by_library=runs)
