r"""Measures the share of slots of prefill calls that hold tokens, and finds the bucket lengths with
the largest share.

  PYTHONPATH=. python experiments/benchmarks/prefill_buckets.py --run=runs/quickstart

Reads the episodes of a run and cuts their prefilled tokens (the prompt and the tokens between two
actions) as the sampler does. Prints the share with the run's `sampler.buckets` and with the same
number of fitted buckets. The longest fitted bucket holds the longest chunk in one slice. Slices
that stay empty in a call are not counted. Prefixes shared within a group are counted once per
episode.
"""

import sys

import numpy as np
from absl import app, flags

from agentgym_jax.episodes.trajectory import Trajectory, from_record
from agentgym_jax.runs.run_folder import RunFolder
from experiments.benchmarks.bucket_lengths import choose_lengths, prefill_capacity

_RUN = flags.DEFINE_string("run", None, "Run folder.", required=True)
_PLACES = 1024  # slots of one call, as in configs/common.py


def appended(trajectory: Trajectory) -> list[int]:
    """Returns the numbers of tokens in the prompt and between the actions, in the order of the
    episode.
    """
    is_action = np.concatenate([[True], trajectory.action_mask, [True]])
    starts_and_stops = np.flatnonzero(np.diff(is_action.astype(np.int8)))
    return np.diff(starts_and_stops)[::2].tolist()


def main(_: list[str]) -> None:
    """Prints the share with the run's buckets and the share with fitted buckets."""
    folder = RunFolder(_RUN.value)
    sampler = folder.config()["sampler"]
    found = [
        length
        for step in folder.trajectory_steps()
        for record in folder.read_trajectories(step)
        for length in appended(from_record(record))
    ]
    own = sorted(tokens for tokens, _ in sampler["buckets"])
    best = choose_lengths(found, count=len(own), longest=sampler["cache_length"])
    for name, lengths in (("own", own), ("fitted", best)):
        buckets = tuple((T, max(1, min(16, _PLACES // T))) for T in lengths)
        share = sum(found) / prefill_capacity(found, lengths)
        sys.stdout.write(f"{name:7} {100 * share:3.0f} % filled, {lengths}, buckets={buckets}\n")


if __name__ == "__main__":
    app.run(main)
