r"""Measures the episodes per minute of a multi-turn rollout whose environments answer late.

  PYTHONPATH=. python experiments/benchmarks/multiturn.py --shape=30m --rows=8 \
      --tunix_python=tunix-env/bin/python

Our engine is the collector, the thread pool and the sampler, as in training. The first comparison
is the same sampler in lock step: every turn prefills the whole history, and all rows wait for the
slowest. The second comparison is tunix's engine, used as tunix's agentic learner uses it. All
engines use random weights and the episodes of number_episodes.py.
"""

import sys

import side_by_side
from absl import app, flags
from shapes import SHAPES
from side_by_side import Contender

_SHAPE = flags.DEFINE_enum("shape", "30m", sorted(SHAPES), "Shape of the network.")
_ROWS = flags.DEFINE_integer("rows", 8, "Episodes that run concurrently.")
_DECODE_ROWS = flags.DEFINE_integer("decode_rows", 0, "Rows that decode together; 0: all.")
_EPISODES = flags.DEFINE_integer("episodes", 32, "Episodes of a measurement.")
_TURNS = flags.DEFINE_list("turns", ["5", "20"], "Minimum and maximum turns of an episode.")
_TURN_TOKENS = flags.DEFINE_integer("turn_tokens", 32, "Mean number of sampled tokens per turn.")
_PROMPT = flags.DEFINE_integer("prompt", 64, "Tokens of a prompt.")
_OBSERVATION = flags.DEFINE_integer("observation", 48, "Tokens of an observation.")
_BUDGET = flags.DEFINE_integer("budget", 1984, "Maximum tokens of an episode after its prompt.")
_DELAY = flags.DEFINE_float(
    "delay_s", 0.05, "Minimum delay of an observation (Pareto distribution, 1.5)."
)
_MAX_DELAY = flags.DEFINE_float("max_delay_s", 3.0, "Maximum delay of an observation.")
_STEPS = flags.DEFINE_integer("decode_steps", 32, "Maximum tokens per row and decode call.")
_WAKE = flags.DEFINE_integer("return_after_finished", 1, "Finished turns that end a decode call.")
_ROUNDS = flags.DEFINE_integer("rounds", 2, "Number of measurements of each contender.")
_TUNIX = flags.DEFINE_string(
    "tunix_python", "", "Python interpreter that has google-tunix; empty: not measured."
)
_TUNIX_EPISODES = flags.DEFINE_integer("tunix_episodes", 8, "Episodes of a measurement of tunix.")
_OUT = flags.DEFINE_string("out", "", "File that the JSON line is appended to.")


def contenders() -> list[Contender]:
    """Returns the engines to compare, ours first."""
    turns = [int(n) for n in _TURNS.value]
    options = dict(
        shape=_SHAPE.value,
        dtype="float32",
        rows=_ROWS.value,
        decode_rows=_DECODE_ROWS.value,
        episodes=_EPISODES.value,
        turns=turns,
        turn_tokens=_TURN_TOKENS.value,
        prompt=_PROMPT.value,
        observation=_OBSERVATION.value,
        budget=_BUDGET.value,
        cache_length=_PROMPT.value + _BUDGET.value,
        delay_s=_DELAY.value,
        max_delay_s=_MAX_DELAY.value,
        decode_steps=_STEPS.value,
        return_after_finished=_WAKE.value,
    )
    found = [
        Contender("ours", "worker_ours.py", sys.executable, options | {"task": "multiturn"}),
        Contender("lock step", "worker_ours.py", sys.executable, options | {"task": "lock_step"}),
    ]
    if _TUNIX.value:
        of_tunix = options | dict(
            task="multiturn",
            episodes=_TUNIX_EPISODES.value,
            # Tunix's cache must hold the history, rounded up to a power of two, and the rest of the
            # budget.
            cache_length=4 * (_PROMPT.value + _BUDGET.value),
            concurrency=_ROWS.value,
        )
        found.append(Contender("tunix", "worker_tunix.py", _TUNIX.value, of_tunix))
    return found


def main(_: list[str]) -> None:
    """Prints one JSON line and a table."""
    found = side_by_side.compare(contenders(), rounds=_ROUNDS.value, keep_alive=True)
    table = {}
    for name, record in found.items():
        episodes = _TUNIX_EPISODES.value if name == "tunix" else _EPISODES.value
        for run in record["runs"]:
            run["episodes_per_min"] = 60 * episodes / run["wall_s"]
            run["sampled_per_s"] = run["sampled"] / run["wall_s"]
            run["computed_over_kept"] = run["computed"] / run["kept"]
        fields = ["episodes_per_min", "sampled_per_s", "computed_over_kept"]
        fields += [f for f in ("occupancy", "env_wait_s") if f in record["runs"][0]]
        table[name] = {field: side_by_side.median(found, name, field) for field in fields}
        table[name]["ours_over_it"] = side_by_side.ratio_text(
            side_by_side.ratios(found, "ours", name, "sampled_per_s")
        )
    options = {
        name: flags.FLAGS[name].value
        for name in ("shape", "rows", "decode_rows", "episodes", "turns")
    }
    side_by_side.write(
        dict(benchmark="multiturn", options=options, table=table, found=found), _OUT.value
    )
    for name, line in table.items():
        told = "  ".join(f"{k} {v:.2f}" for k, v in line.items() if isinstance(v, float))
        sys.stderr.write(f"{name:10} {told}  ours over it (sampled/s) {line['ours_over_it']}\n")


if __name__ == "__main__":
    app.run(main)
