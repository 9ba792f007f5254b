r"""Measures the seconds of an episode against its tokens: is the cost of an episode proportional to
its length?

  PYTHONPATH=. python experiments/benchmarks/episode_length.py --picture=episode_length.png

The episodes are those of multiturn.py, with environments that answer immediately and equal numbers
of turns. They run once through the rollout engine, whose rows keep their caches, and once in lock
step, where the history is computed again at every turn. If the cost of an episode were exactly
proportional to its length, `ms_per_token` (of the tokens at the end of an episode) would be the
same in every line. Attention over a longer history makes it grow.
"""

import sys

import side_by_side
from absl import app, flags
from shapes import SHAPES
from side_by_side import Contender

_SHAPE = flags.DEFINE_enum("shape", "30m", sorted(SHAPES), "Shape of the network.")
_ROWS = flags.DEFINE_integer("rows", 8, "Episodes that run concurrently.")
_EPISODES = flags.DEFINE_integer("episodes", 16, "Episodes of a measurement.")
_TURNS = flags.DEFINE_list("turns", ["2", "4", "8", "16", "32"], "Turns of an episode.")
_LOCK_STEP = flags.DEFINE_integer(
    "lock_step_turns", 16, "Turns of the longest episodes in lock step."
)
_TURN_TOKENS = flags.DEFINE_integer("turn_tokens", 32, "Mean number of sampled tokens per turn.")
_PROMPT = flags.DEFINE_integer("prompt", 64, "Tokens of a prompt.")
_OBSERVATION = flags.DEFINE_integer("observation", 48, "Tokens of an observation.")
_ROUNDS = flags.DEFINE_integer("rounds", 2, "Number of measurements of each contender.")
_PICTURE = flags.DEFINE_string("picture", "", "File for the plot.")
_OUT = flags.DEFINE_string("out", "", "File that the JSON line is appended to.")

TASKS = {"ours": "multiturn", "lock step": "lock_step"}


def contender(name: str, turns: int, longest: int) -> Contender:
    """Returns the engine `name` with options for episodes of `turns` turns.

    The cache always has room for `longest` turns.
    """
    budget = longest * (2 * _TURN_TOKENS.value + _OBSERVATION.value + 16)
    options = dict(
        task=TASKS[name],
        shape=_SHAPE.value,
        dtype="float32",
        rows=_ROWS.value,
        decode_rows=0,
        episodes=_EPISODES.value,
        turns=[turns, turns],
        turn_tokens=_TURN_TOKENS.value,
        prompt=_PROMPT.value,
        observation=_OBSERVATION.value,
        budget=budget,
        cache_length=_PROMPT.value + budget,
        delay_s=0.0,
        max_delay_s=0.0,
        decode_steps=32,
        return_after_finished=1,
    )
    return Contender(f"{name}, {turns}", "worker_ours.py", sys.executable, options)


def draw(table: list[dict]) -> None:
    """Draws seconds of an episode against its tokens, one line for each engine."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, marker in zip(TASKS, "os", strict=True):
        lines = [line for line in table if line["name"] == name]
        axes.plot(
            [line["tokens"] for line in lines],
            [line["episode_s"] for line in lines],
            marker=marker,
            label=name,
        )
    axes.set_xlabel("tokens of an episode")
    axes.set_ylabel("seconds for an episode")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.legend()
    figure.savefig(_PICTURE.value, dpi=110)


def main(_: list[str]) -> None:
    """Prints one JSON line and a table, and draws the plot."""
    lengths = sorted(int(n) for n in _TURNS.value)
    cases = [
        (name, n) for n in lengths for name in TASKS if name == "ours" or n <= _LOCK_STEP.value
    ]
    longest = {"ours": lengths[-1], "lock step": min(lengths[-1], _LOCK_STEP.value)}
    found = side_by_side.compare(
        [contender(name, n, longest[name]) for name, n in cases],
        rounds=_ROUNDS.value,
        keep_alive=False,
    )
    table = []
    for name, turns in cases:
        case = f"{name}, {turns}"
        seconds = side_by_side.median(found, case, "wall_s") / _EPISODES.value
        tokens = side_by_side.median(found, case, "kept") / _EPISODES.value
        line = dict(name=name, turns=turns, tokens=tokens, episode_s=seconds)
        line["ms_per_token"] = 1e3 * seconds / tokens
        table.append(line)
        sys.stderr.write(
            f"{name:10} {turns:3} turns {tokens:7.0f} tokens {seconds:7.3f} s {line['ms_per_token']:7.2f} ms a token\n"
        )
    options = {name: flags.FLAGS[name].value for name in ("shape", "rows", "episodes", "turns")}
    side_by_side.write(
        dict(benchmark="episode_length", options=options, table=table, found=found), _OUT.value
    )
    if _PICTURE.value:
        draw(table)


if __name__ == "__main__":
    app.run(main)
