r"""Share of the places of prefill calls that tokens fill, and the bucket lengths that fill most.

  PYTHONPATH=. python experiments/benchmarks/prefill_buckets.py --run=runs/quickstart

Reads the episodes of a run and repeats how the sampler cuts what it appends: the tokens between
two actions, and the opening. Prints the share with the run's own `sampler.buckets` and with fitted
ones of the same number, the longest of which holds the longest piece in one lane. Lanes that stay
empty in a call are not counted. Prefixes shared within a group are counted once per episode.
"""

import sys

import numpy as np
from absl import app, flags

from agentgym_jax.run_folder import RunFolder
from agentgym_jax.sampling.pieces import best_lengths, places
from agentgym_jax.trajectory import Trajectory, from_record

_RUN = flags.DEFINE_string("run", None, "Run folder.", required=True)
_PLACES = 1024  # of one call, as in configs/common.py


def appended(trajectory: Trajectory) -> list[int]:
    """Returns the lengths of the token sequences between actions, in the order of the episode."""
    is_action = np.concatenate([[True], trajectory.action_mask, [True]])
    starts_and_stops = np.flatnonzero(np.diff(is_action.astype(np.int8)))
    return np.diff(starts_and_stops)[::2].tolist()


def main(_: list[str]) -> None:
    """Two lines of text."""
    folder = RunFolder(_RUN.value)
    sampler = folder.config()["sampler"]
    found = [
        length
        for step in folder.trajectory_steps()
        for record in folder.read_trajectories(step)
        for length in appended(from_record(record))
    ]
    own = sorted(tokens for tokens, _ in sampler["buckets"])
    best = best_lengths(found, count=len(own), longest=sampler["cache_length"])
    for name, lengths in (("own", own), ("fitted", best)):
        buckets = tuple((T, max(1, min(16, _PLACES // T))) for T in lengths)
        share = sum(found) / places(found, lengths)
        sys.stdout.write(f"{name:7} {100 * share:3.0f} % filled, {lengths}, buckets={buckets}\n")


if __name__ == "__main__":
    app.run(main)
