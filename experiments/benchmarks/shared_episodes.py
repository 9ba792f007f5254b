r"""Measures what the processes of a run exchange after a rollout, and what it costs process 0.

  PYTHONPATH=. python experiments/benchmarks/shared_episodes.py --episodes=10000 --processes=64,256

No process is started: this one has the number 0, and the store that connects the processes is a
dictionary of packed values. Process 0 has its own episodes and reads the answers of a few other
processes, which stand for all: times and memory are extrapolated. `whole` is the exchange of whole episodes (`shared.gather_episodes`),
`summaries` that of training (`shared.share_episodes`), in which every episode is also loaded twice:
for its row of the batch and for its record. `store_gb` is held by process 0, `objects_gb` are the
Python objects of episodes of others in every process (tracemalloc). Times are CPU seconds.
"""

import collections
import json
import random
import time
import tracemalloc

import numpy as np
from absl import app, flags

from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.summary import EpisodeSummary
from agentgym_jax.episodes.trajectory import Outcome, TokenSource, Trajectory, Turn
from agentgym_jax.mesh import processes
from agentgym_jax.mesh.cluster import pack_value, unpack_value
from agentgym_jax.rollout import shared
from agentgym_jax.rollout.episode import EpisodeLimits, EpisodeRequest
from agentgym_jax.rollout.interface import CollectStatistics
from agentgym_jax.sampling.options import SamplingOptions

_EPISODES = flags.DEFINE_integer("episodes", 10_000, "Episodes of a step.")
_PROCESSES = flags.DEFINE_list("processes", ["64", "256"], "Numbers of processes.")
_TURNS = flags.DEFINE_integer("turns", 20, "Turns of an episode.")
_WORDS = flags.DEFINE_integer("words", 100, "Words, and tokens, of an observation.")
_ACTION = flags.DEFINE_integer("action", 25, "Tokens of an action.")
_SAMPLE = flags.DEFINE_integer("sample", 12, "Other processes whose answers are read.")
_VOCABULARY = [f"word{n:x}" for n in np.random.default_rng(0).integers(0, 10**6, 2000)]


def episode(number: int) -> Trajectory:
    """Returns an episode of random words; frequent words are as frequent as in texts."""
    rng = random.Random(number)
    tokens, sources, logprobs, turns, messages = [], [], [], [], []
    for _ in range(_TURNS.value):
        ids = [int(2000 * rng.random() ** 3) for _ in range(_WORDS.value + _ACTION.value)]
        words = [_VOCABULARY[i] for i in ids]
        observation, action = words[: _WORDS.value], " ".join(words[_WORDS.value :])
        start = len(tokens) + _WORDS.value
        tokens += ids
        sources += [TokenSource.OBSERVATION] * _WORDS.value + [TokenSource.ACTION] * _ACTION.value
        logprobs += [0.0] * _WORDS.value + [-rng.random() for _ in range(_ACTION.value)]
        text = " ".join(observation)
        turns.append(Turn(start, start + _ACTION.value, action, action, text, 0.0, False))
        messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": action},
        ]
    source = np.array(sources, np.int8)
    return Trajectory(
        item_id=f"babyai_{number // 8}",
        sample=number % 8,
        step=0,
        outcome=Outcome.HORIZON,
        score=0.0,
        success=False,
        tokens=np.array(tokens, np.int32),
        sources=source,
        logprobs=np.array(logprobs, np.float32),
        policy_versions=np.where(source == TokenSource.ACTION, 0, -1).astype(np.int32),
        turns=tuple(turns),
        messages=tuple(messages),
    )


class PackedStore:
    """`processes.Store` of process 0, in which all processes have given its own answers."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def put(self, key, value, *, is_shared=False):
        """Stores the packed value."""
        self.values[key] = pack_value(value)

    def delete(self, key):
        """Deletes a value, if there is one."""
        self.values.pop(key, None)

    def get(self, key, timeout_s=0.0):
        """Returns the value of process 0 in place of that of another process."""
        if key not in self.values:
            key = key.rpartition("/")[0] + "/0"
        return unpack_value(self.values[key]) if key in self.values else None


def exchange(kind: str, own: list[Trajectory], count: int) -> tuple[PackedStore, list]:
    """Returns the store and the episodes of other processes after the exchange with `count - 1`."""
    store, statistics = PackedStore(), CollectStatistics(collections.Counter())
    processes.join(store, 0, count)
    if kind == "whole":
        found = shared.gather_episodes(lambda: (own, statistics))
        return store, [t for trajectories, _ in found[1:] for t in trajectories]
    limits, options = EpisodeLimits(20, 9999, 9), SamplingOptions(1.0, 64, 9999)
    requests = [
        EpisodeRequest(Task("babyai", group * count + p, ""), sample, 0, 0, limits, options)
        for group in range(len(own) // 8)
        for p in range(count)
        for sample in range(8)
    ]
    merged, _ = shared.share_episodes(requests, lambda: (own, statistics))
    return store, [t for t in merged if isinstance(t, EpisodeSummary)]


def seconds_of(call) -> float:
    """Returns the least CPU time of three calls."""
    seconds = []
    for _ in range(3):
        started = time.process_time()
        call()
        seconds.append(time.process_time() - started)
    return min(seconds)


def measure(kind: str, own: list[Trajectory], count: int) -> dict[str, float]:
    """Returns the cost of a step for `count` processes, from exchanges with two and with more."""
    sample = 1 + _SAMPLE.value
    two, more = (seconds_of(lambda n=n: exchange(kind, own, n)) for n in (2, sample))
    tracemalloc.start()
    store, others = exchange(kind, own, sample)
    packed = sum(map(len, store.values.values()))
    held = tracemalloc.get_traced_memory()[0] - packed
    tracemalloc.stop()
    offered = sum(len(v) for k, v in store.values.items() if k.startswith("offer/"))
    answer = packed - offered
    host_s = two + (more - two) / (sample - 2) * (count - 2)
    if kind != "whole":  # for the rows of this process and for its part of the records
        host_s += 2 * seconds_of(lambda: [t._load() for t in others[: len(own)]])
    return {
        "processes": count,
        "kind": kind,
        "episodes": len(own) * count,
        "bytes_per_episode_and_process": answer / len(own),
        # every answer is stored once and read by all; every episode is stored once and loaded twice
        "through_store_gb": (answer * (1 + count) + 3 * offered) * count / 1e9,
        "store_gb": packed * count / 1e9,
        "objects_gb": held / (sample - 1) * (count - 1) / 1e9,
        "host_s": host_s,
        "host_ms_per_turn": 1e3 * host_s / (len(own) * count * _TURNS.value),
    }


def main(_: list[str]) -> None:
    """Prints a line for each number of processes and kind of exchange."""
    for count in map(int, _PROCESSES.value):
        own = [episode(i) for i in range(max(1, round(_EPISODES.value / count / 8)) * 8)]
        for kind in ("whole", "summaries"):
            found = measure(kind, own, count)
            print(
                json.dumps(
                    {k: round(v, 4) if isinstance(v, float) else v for k, v in found.items()}
                )
            )


if __name__ == "__main__":
    app.run(main)
