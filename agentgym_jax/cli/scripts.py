"""Console scripts: `agentgym-train` is equivalent to `python -m agentgym_jax.train`, and so on."""

import functools
import runpy


def _run(command: str) -> None:
    runpy.run_module(f"agentgym_jax.{command}", run_name="__main__", alter_sys=True)


train = functools.partial(_run, "train")
evaluate = functools.partial(_run, "evaluate")
results = functools.partial(_run, "results")
export = functools.partial(_run, "export")
view = functools.partial(_run, "view")
plan = functools.partial(_run, "plan")
serve = functools.partial(_run, "serve")
tinker = functools.partial(_run, "tinker")
replay = functools.partial(_run, "replay")
sweep = functools.partial(_run, "sweep")
