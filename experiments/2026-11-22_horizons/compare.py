r"""Compares four schedules of the turn limit at equal tokens, three seeds, from the same warm
start. A second call resumes.

  PYTHONPATH=.:experiments/2026-11-22_horizons python experiments/2026-11-22_horizons/compare.py --out=runs/horizons

A run stops after the step in which its training episodes, sampled and observed tokens together,
have reached the budget. Then all held-out tasks are evaluated at the long turn limit. Evaluations
do not count in the budget.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys

import config as horizons
import jax

from agentgym_jax.config.sections import plain
from agentgym_jax.jobs import after_step as held_out
from agentgym_jax.jobs.run import StopFlag, StopRequested
from agentgym_jax.rl import loop as rl
from agentgym_jax.rl.build import open_rl

HERE = pathlib.Path(__file__).parent
_SPEC = importlib.util.spec_from_file_location(
    "every_algorithm", HERE.parent / "2026-11-22_every_algorithm" / "run.py"
)
every_algorithm = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(every_algorithm)


def tokens_of(metrics: pathlib.Path) -> float:
    """Returns the tokens of all training episodes so far."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return sum(m["rollout/tokens_mean"] * m["rollout/episodes"] for m in lines if m["step"])


class Budget(StopFlag):
    """Stop flag that is set when a run reaches its token budget; `is_lifted` removes the budget."""

    def __init__(self, metrics: pathlib.Path, tokens: float) -> None:
        super().__init__()
        self._metrics = metrics
        self._tokens = tokens
        self._size = -1
        self._is_spent = False
        self.is_lifted = False

    def __call__(self) -> bool:
        if self.is_lifted:
            return super().__call__()
        size = self._metrics.stat().st_size if self._metrics.exists() else 0
        if size != self._size:
            self._size, self._is_spent = size, tokens_of(self._metrics) >= self._tokens
        return self._is_spent or super().__call__()


def run(config: dict, folder: pathlib.Path, tokens: float) -> None:
    """Trains until the token budget is spent, then evaluates all held-out tasks."""
    flag = Budget(folder / "metrics.jsonl", tokens)
    with flag.installed() as stop, open_rl(config, str(folder), stop) as (opened, parts):
        try:
            rl.train(opened, parts)
        except StopRequested:
            flag.is_lifted = True
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        step = json.loads(lines[-1])["step"]
        scores = held_out.evaluate_step(opened, parts.agent, parts.settings, step)
    (folder / "final.json").write_text(json.dumps(dict(step=step, **scores)))


def main() -> None:
    """Runs all schedules and seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokens", type=float, required=True)
    parser.add_argument("--horizons", default="short,long,stepwise,adaptive")
    parser.add_argument("--seeds", default="0,1,2")
    args = parser.parse_args()
    jax.config.update("jax_compilation_cache_dir", str(every_algorithm.CACHE))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    out = pathlib.Path(args.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    for seed in args.seeds.split(","):
        for name in args.horizons.split(","):
            folder = out / f"{name}_{seed}"
            if (HERE / "results" / f"{name}_{seed}.final.json").exists():
                continue
            try:
                os.close(os.open(f"{folder}.claim", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            c = plain(horizons.get_config(f"horizon={name},start={out / 'start_chain'}"))
            c["seed"] = int(seed)
            run(c, folder, args.tokens)
            every_algorithm.keep(
                folder / "metrics.jsonl", HERE / "results" / f"{name}_{seed}.jsonl"
            )
            final = json.loads((folder / "final.json").read_text())
            (HERE / "results" / f"{name}_{seed}.final.json").write_text(json.dumps(final) + "\n")
            sys.stderr.write(f"{name}_{seed}: done\n")


if __name__ == "__main__":
    main()
