r"""Measures the cost of the sampler's compiled programs at several row lengths.

  PYTHONPATH=. python experiments/benchmarks/sampler_programs.py --rows=64 --cache_length=1024 --slices=16x32

The network is the one in configs/quickstart.py. The script prints milliseconds per decode step (one
token for every row) and microseconds per slot of a prefill call. Run it alone on the machine, and
compare only numbers of one session. Each number is the best of several repetitions.
"""

import time

import jax
import numpy as np
from absl import app, flags

from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.policy import Policy
from agentgym_jax.sampling import decode
from configs import quickstart

_ROWS = flags.DEFINE_integer("rows", 64, "Number of decode rows.")
_CACHE = flags.DEFINE_integer("cache_length", 1024, "Cache slots of each row.")
_SLICES = flags.DEFINE_multi_string(
    "slices", ["16x32", "32x32", "64x16"], "Lengths and numbers of prefill slices."
)
_LENGTHS = flags.DEFINE_multi_integer(
    "at", [50, 200, 400, 800], "Numbers of tokens that every row already has."
)
_REPEATS = flags.DEFINE_integer("repeats", 10, "Number of calls; the fastest counts.")

STEPS = 8


def network() -> Policy:
    """Returns the policy network of the quickstart."""
    c = quickstart.get_config()
    return Policy(DecoderConfig(vocab_size=c.tokenizer.vocab_size, **c.model.architecture))


def fastest(call) -> float:
    """Returns the seconds of the fastest of several calls, after a first call that compiles."""
    call()
    seconds = []
    for _ in range(_REPEATS.value):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def rows_at(length: int) -> decode.RowState:
    """Returns active rows with `length` tokens each; no token ends a turn."""
    B = _ROWS.value
    return decode.RowState(
        token=np.ones(B, np.int32),
        length=np.full(B, length, np.int32),
        budget=np.full(B, 1000, np.int32),
        is_active=np.ones(B, bool),
        key=np.zeros((B, 2), np.uint32),
        temperature=np.ones(B, np.float32),
        top_k=np.zeros(B, np.int32),
        top_p=np.ones(B, np.float32),
        stop=np.full((B, 1), -1, np.int32),
    )


def main(_) -> None:
    """Prints the times of the programs at several row lengths."""
    policy = network()
    params = policy.init(jax.random.key(0))
    cache = KVCache.create(policy.config, _ROWS.value, _CACHE.value, policy.dtype)

    def decode_chunk(rows):
        nonlocal cache
        cache, chunk = decode.decode_chunk(
            policy, params, cache, rows, np.int32(_ROWS.value), steps=STEPS
        )
        jax.block_until_ready(chunk)

    def prefill(T, n, length):
        nonlocal cache
        row_n = np.arange(n, dtype=np.int32) % _ROWS.value
        start_n, count_n = np.full(n, length, np.int32), np.full(n, T, np.int32)
        tokens_nT = np.ones((n, T), np.int32)
        cache = decode.prefill(policy, params, cache, tokens_nT, row_n, start_n, count_n)
        jax.block_until_ready(cache)

    for length in _LENGTHS.value:
        seconds = fastest(lambda length=length: decode_chunk(rows_at(length)))
        print(f"decode at {length}: {1e3 * seconds / STEPS:.2f} ms a step")
    for shape in _SLICES.value:
        T, n = (int(part) for part in shape.split("x"))
        for length in _LENGTHS.value:
            seconds = fastest(lambda T=T, n=n, length=length: prefill(T, n, length))
            print(f"prefill {shape} at {length}: {1e6 * seconds / (T * n):.1f} us a place")


if __name__ == "__main__":
    app.run(main)
