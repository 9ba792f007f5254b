r"""Measures the seconds per step of an RL run, and the mean age of its trained tokens.

  PYTHONPATH=. python experiments/benchmarks/lag.py --latency_s=0.5 --order=0,1,2,3

Agents wait for the update (rollout.max_off_policy_steps=0), do not wait (1), or rollouts of several
steps overlap (2 and more). Environments run in this process, and every call takes `latency_s` longer,
as with a slow or distant server; a share of the calls takes several times as long. There is a row for
every running episode. With `--program` an agent program plays the episodes. The policy is small and
hardly trained. The first steps of a run compile and are excluded; the result is the median of the
other steps.

With `--simulate` no policy runs: the delays are drawn, a turn takes `turn_s` and an update
`update_s` seconds, and the turns of every update are those of `turn_versions`.
"""

import json
import pathlib
import random
import tempfile
import time

import numpy as np
from absl import app, flags

from agentgym_jax.cli.command_setup import prepare
from agentgym_jax.config.sections import plain
from agentgym_jax.jobs.run import StopFlag
from agentgym_jax.rl import loop as rl
from agentgym_jax.rl.background_rollouts import turn_versions
from agentgym_jax.rl.build import open_rl
from configs import quickstart

_LATENCY = flags.DEFINE_float(
    "latency_s", 0.5, "Delay added to every reset and step of an environment."
)
_SLOW = flags.DEFINE_float("slow_share", 0.1, "Share of the calls with a longer delay.")
_FACTOR = flags.DEFINE_float("slow_factor", 5.0, "Ratio of the longer and the usual delay.")
_PROGRAM = flags.DEFINE_bool("program", False, "Whether an agent program plays the episodes.")
_ORDER = flags.DEFINE_list(
    "order", ["0", "1", "2", "3"], "max_off_policy_steps of each run, in order."
)
_SIMULATE = flags.DEFINE_bool("simulate", False, "Whether no policy runs.")
_TURN_S = flags.DEFINE_float("turn_s", 0.2, "Seconds of a simulated turn.")
_UPDATE_S = flags.DEFINE_float("update_s", 4.0, "Seconds of a simulated update.")
_STEPS = flags.DEFINE_integer("steps", 16, "Steps of a run.")
_SKIPPED = flags.DEFINE_integer("skipped", 4, "First steps, which are not counted.")
_EPISODES = flags.DEFINE_integer("episodes", 32, "Episodes of a step.")
_WIDTH = flags.DEFINE_integer("width", 32, "Width of the policy, which has one layer.")
_EPOCHS = flags.DEFINE_integer("epochs", 2, "Passes over the episodes.")
_TURNS = flags.DEFINE_integer("turns", 6, "Turns of an episode.")


def config(lag: int) -> dict:
    """Returns the quickstart with short episodes that end only by their turn limit."""
    c = quickstart.get_config("smoke")
    c.total_steps = _STEPS.value
    c.model.architecture.update(
        hidden_size=_WIDTH.value, intermediate_size=2 * _WIDTH.value, num_layers=1
    )
    c.sampling.max_tokens = c.sampler.cache_length = c.learner.row_length = 512
    c.sampling.max_turn_tokens = 8
    c.learner.epochs = _EPOCHS.value
    c.env_server.transport = "inprocess"
    c.rollout.max_off_policy_steps = lag
    c.sampler.rows = c.pool.workers = _EPISODES.value * max(1, lag)
    if _PROGRAM.value:
        c.rollout.show_turn_budget = "none"
        c.program = dict(function="agentgym_jax.programs.react:play")
    c.rollout.group_size = 4
    c.rollout.tasks_per_step = _EPISODES.value // 4
    c.rollout.max_parse_errors = 99
    c.horizon = dict(kind="fixed", turns=_TURNS.value)
    # gives a learning signal, because an untrained policy never succeeds
    c.algorithm.entropy_coef = 1e-3
    c.learner.min_informative_groups = 0
    c.evaluation.at_start = False
    c.checkpoint.every = 10**6
    return plain(c)


def delay(rng: random.Random) -> float:
    """Returns the delay of a call, in seconds."""
    return _LATENCY.value * (_FACTOR.value if rng.random() < _SLOW.value else 1.0)


def slowed(call):
    """Returns `call` with a delay before each call."""
    rng = random.Random(0)

    def wait_and_call(*args, **kwargs):
        time.sleep(delay(rng))
        return call(*args, **kwargs)

    return wait_and_call


def steps_of_run(lag: int, workdir: str) -> list[dict]:
    """Runs the job with the given lag and returns the metrics of the counted steps."""
    with open_rl(config(lag), workdir, StopFlag()) as (run, parts):
        for client in parts.agent.environments.clients.values():
            client.reset, client.step = slowed(client.reset), slowed(client.step)
        rl.train(run, parts)
    lines = (pathlib.Path(workdir) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines[_SKIPPED.value :]]


def simulated_steps(lag: int) -> list[dict]:
    """Returns the metrics of the counted steps of a simulated run."""
    rng, turns, lines = random.Random(0), _TURNS.value, []
    for now in range(_STEPS.value):
        rollout_s, ages = 0.0, []
        for step in range(now + 1, now + lag + 1) if lag else [now]:
            versions = turn_versions(step, turns, lag) if lag else (now,) * turns
            own = [turn for turn, version in enumerate(versions) if version == now]
            for _ in range(_EPISODES.value):
                calls = len(own) + (0 in own)  # with the reset
                rollout_s = max(
                    rollout_s, len(own) * _TURN_S.value + sum(delay(rng) for _ in range(calls))
                )
        if lag:
            ages = [now - version for version in turn_versions(now, turns, lag)]
        seconds = max(rollout_s, _UPDATE_S.value) if lag else rollout_s + _UPDATE_S.value
        lines.append(
            {
                "time/iteration_s": seconds,
                "time/rollout_s": rollout_s,
                "time/update_s": _UPDATE_S.value,
                "policy/off_policy_steps": float(np.mean(ages)) if ages else 0.0,
                "policy/off_policy_steps_max": float(max(ages, default=0)),
            }
        )
    return lines[_SKIPPED.value :]


def main(_: list[str]) -> None:
    """Runs the jobs in the given order; prints a line for each run, then the medians."""
    prepare()
    seconds: dict[str, list[float]] = {lag: [] for lag in _ORDER.value}
    for lag in _ORDER.value:
        with tempfile.TemporaryDirectory() as workdir:
            steps = (
                simulated_steps(int(lag)) if _SIMULATE.value else steps_of_run(int(lag), workdir)
            )
        seconds[lag] += [step["time/iteration_s"] for step in steps]
        names = (
            *("time/iteration_s", "time/rollout_s", "time/env_wait_s", "time/update_s"),
            *("policy/off_policy_steps", "policy/off_policy_steps_max"),
        )
        medians = {n: round(float(np.median([s.get(n, 0.0) for s in steps])), 3) for n in names}
        print(json.dumps({"lag": int(lag), "steps": len(steps), **medians}), flush=True)
    for lag, values in seconds.items():
        print(json.dumps({"lag": int(lag), "median_s": float(np.median(values)), "n": len(values)}))


if __name__ == "__main__":
    app.run(main)
