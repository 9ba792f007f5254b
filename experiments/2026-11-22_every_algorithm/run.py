r"""Runs every algorithm on both environments, three seeds, from the same warm start.

A second call runs only the missing runs.

  PYTHONPATH=. python experiments/2026-11-22_every_algorithm/run.py --out=runs/every_algorithm \
      --of=bandit,two_rooms --algorithms=grpo,rloo --seeds=0,1,2

Several of these processes may use the same folder. The process that creates the `.claim` of a run
executes that run. A finished run writes its metrics, without times and machine statistics, to
`results/<config>/<algorithm>_<seed>.jsonl` and is never run again.
"""

import argparse
import importlib
import json
import os
import pathlib
import subprocess
import sys
import time

import jax

from agentgym_jax.config.sections import plain
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.rl import loop as rl
from agentgym_jax.rl.build import open_rl

HERE = pathlib.Path(__file__).parent
CACHE = pathlib.Path("~/.cache/agentgym_jax/xla").expanduser()
# Inputs of the tables and figures; the rest of metrics.jsonl is not kept.
KEPT = set(
    """step eval/score eval/score_greedy eval/success eval/success_greedy eval/success_low eval/success_high
    eval/episodes eval/turns_mean rollout/score_mean rollout/success rollout/reward_mean rollout/episodes
    rollout/tokens_mean rollout/turns_mean rollout/informative_groups rollout/sampled_entropy
    rollout/env_errors policy/entropy policy/approx_kl policy/clip_fraction policy/grad_norm policy/updates
    policy/kl_k3 policy/learning_rate policy/expected_return critic/loss critic/explained_variance
    horizon/turns batch/tokens time/iteration_s""".split()
)
# Settings that an algorithm requires; all other settings are shared.
SMALLER_STEPS = {"optimizer.learning_rate": 1e-3, "total_steps": 68}
OWN: dict[str, dict] = {
    # The recorded runs average over tokens; the published `grpo` averages per episode.
    "grpo": {"algorithm.aggregation.mode": "token_mean"},
    # The loss has no ratio, so there is one update per rollout, and twice the rollouts for as many
    # updates.
    "reinforce": {"learner.mini_batches": 1, "total_steps": 90},
    # CISPO keeps the gradient of tokens whose ratio has left the clip range, so it needs more steps
    # at a smaller learning rate.
    "cispo": SMALLER_STEPS,
    # At the shared rate some seeds of these algorithms failed here (README.md).
    "two_rooms gspo_token": SMALLER_STEPS,
    "two_rooms ppo_shared": SMALLER_STEPS,
}


def set_path(config, path: str, value) -> None:
    """Sets a value by its path, such as `learner.mini_batches`, in a plain config."""
    *parents, last = path.split(".")
    for parent in parents:
        config = config[parent]
    config[last] = value


def config_of(of: str, algorithm: str, seed: int, start: pathlib.Path, url: str = "") -> dict:
    """Returns the config of one run. `url` is a server that several runs share, or empty."""
    module = importlib.import_module(f"configs.rl.{of}")
    c = plain(module.get_config(f"algorithm={algorithm},start={start}"))
    c["seed"] = seed
    c["evaluation"]["at_start"] = seed == 0  # the same weights for all seeds
    for entry in c["environments"].values():
        entry |= dict(url=url, module="") if url else {}
    for key in (algorithm, f"{of} {algorithm}"):
        for path, value in OWN.get(key, {}).items():
            set_path(c, path, value)
    return c


def warm_start(of: str, folder: pathlib.Path) -> None:
    """Trains the common initial weights of all runs of a config, once."""
    if folder.exists():
        return
    config = f"{HERE.relative_to(pathlib.Path.cwd())}/warm_start.py:of={of}"
    command = [sys.executable, "-m", "agentgym_jax.train", f"--config={config}"]
    subprocess.run([*command, f"--workdir={folder}"], check=True, stdout=subprocess.DEVNULL)


def keep(metrics: pathlib.Path, target: pathlib.Path) -> None:
    """Copies the metrics that the tables and figures need."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w") as out:
        for line in metrics.read_text().splitlines():
            kept = {k: v for k, v in json.loads(line).items() if k in KEPT}
            rounded = {k: round(v, 5) if isinstance(v, float) else v for k, v in kept.items()}
            out.write(json.dumps(rounded) + "\n")


def run(config: dict, folder: pathlib.Path) -> None:
    """Trains one config without drawing plots."""
    with StopFlag().installed() as stop, open_rl(config, str(folder), stop) as (opened, parts):
        rl.train(opened, parts)


def main() -> None:
    """Runs all selected configs, algorithms and seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--of", required=True)
    parser.add_argument("--algorithms", required=True)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--url", default="", help="server of all runs; empty: a server per run")
    args = parser.parse_args()
    jax.config.update("jax_compilation_cache_dir", str(CACHE))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    out = pathlib.Path(args.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    queue = [
        (of, algorithm, int(seed))
        for seed in args.seeds.split(",")
        for algorithm in args.algorithms.split(",")
        for of in args.of.split(",")
    ]
    for of, algorithm, seed in queue:
        name = f"{algorithm}_{seed}"
        target = HERE / "results" / of / f"{name}.jsonl"
        folder = out / of / name
        if target.exists():
            continue
        folder.parent.mkdir(exist_ok=True)
        try:
            os.close(os.open(f"{folder}.claim", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        start = out / f"start_{of}"
        warm_start(of, start)
        started = time.time()
        run(config_of(of, algorithm, seed, start, args.url), folder)
        keep(folder / "metrics.jsonl", target)
        sys.stderr.write(f"{of} {name}: {time.time() - started:.0f} s\n")


if __name__ == "__main__":
    main()
