r"""Measures the tokens per second of generation under the load that inference engines publish:
requests with prompts and answers of random lengths, all waiting at the start.

  PYTHONPATH=. python experiments/benchmarks/request_load.py --shape=0.5b --rows=256 --dtype=bfloat16

The weights are random, so no answer ends before its length. Reports the sampled tokens per second,
the time of a decode step, and the share of the time that reading the weights and the used part of
the cache would take.
"""

import random
import sys
import time

import numpy as np
import side_by_side
import worker_ours
from absl import app, flags
from shapes import SHAPES, decode_limit_s

from agentgym_jax.sampling.options import SamplingOptions, episode_key
from agentgym_jax.sampling.sampler import Sampler

_SHAPE = flags.DEFINE_enum("shape", "0.5b", sorted(SHAPES), "Shape of the network.")
_ROWS = flags.DEFINE_multi_integer("rows", [256], "Rows that decode together; repeatable.")
_REQUESTS = flags.DEFINE_integer("requests", 256, "Number of requests.")
_SHORTEST = flags.DEFINE_integer("shortest", 100, "Minimum tokens of a prompt and of an answer.")
_LONGEST = flags.DEFINE_integer("longest", 1024, "Maximum tokens of a prompt and of an answer.")
_BUCKET = flags.DEFINE_list("bucket", ["128", "32"], "Tokens and slices of a prefill call.")
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["float32", "bfloat16"], "Data type.")
_OUT = flags.DEFINE_string("out", "", "File that the JSON lines are appended to.")


def serve(sampler: Sampler, requests: list[tuple[int, int]], vocab: int) -> float:
    """Answers requests of (prompt tokens, answer tokens) and returns the seconds they took."""
    rng = np.random.default_rng(0)
    waiting = list(enumerate(requests))
    started = time.perf_counter()
    finished = 0
    while finished < len(requests):
        while waiting and sampler.free_rows:
            index, (prompt, answer) = waiting.pop(0)
            options = SamplingOptions(
                temperature=1.0, max_turn_tokens=answer, max_tokens=prompt + answer
            )
            row = sampler.open(episode_key(0, 0, "load", index), options)
            sampler.prefill(row, [rng.integers(0, vocab, prompt).tolist()])
        for turn in sampler.step():
            sampler.close(turn.row)
            finished += 1
    return time.perf_counter() - started


def main(_: list[str]) -> None:
    """Prints a JSON line for every number of rows."""
    shape, tokens = SHAPES[_SHAPE.value], [int(x) for x in _BUCKET.value]
    rng = random.Random(0)
    lengths = [rng.randint(_SHORTEST.value, _LONGEST.value) for _ in range(2 * _REQUESTS.value)]
    requests = list(zip(lengths[::2], lengths[1::2], strict=True))
    limits = worker_ours.roofline({})()
    for rows in _ROWS.value:
        sampler = worker_ours.engine(
            dict(shape=_SHAPE.value, dtype=_DTYPE.value),
            rows=rows,
            cache_length=2 * _LONGEST.value,
            buckets=[tuple(tokens)],
            decode_steps=16,
            return_after_finished=max(1, rows // 32),
            stop_ids=[-1],
            truncates=False,
        )
        serve(sampler, [(2 * tokens[0], 20)] * rows, shape.vocab)  # compiles
        sampler.reset_statistics()
        seconds = serve(sampler, requests, shape.vocab)
        found = sampler.statistics
        step_s = found.seconds_decode / (found.decode_row_steps / sampler.decode_rows)
        context = sum(prompt + answer / 2 for prompt, answer in requests) / len(requests)
        used_rows = found.occupancy * rows
        limit_s = decode_limit_s(shape, used_rows, context, _DTYPE.value, limits)
        side_by_side.write(
            dict(
                benchmark="request_load",
                shape=_SHAPE.value,
                rows=rows,
                requests=len(requests),
                prompt_tokens=sum(prompt for prompt, _ in requests),
                seconds=seconds,
                tokens_per_s=found.sampled / seconds,
                step_ms=1e3 * step_s,
                share_of_decode_limit=limit_s / step_s,
                occupancy=found.occupancy,
                prefill_s=found.seconds_prefill,
                decode_s=found.seconds_decode,
                machine=limits,
            ),
            _OUT.value,
        )
        sys.stderr.write(
            f"{_SHAPE.value}, {rows} rows: {found.sampled / seconds:8.0f} tokens/s, "
            f"{1e3 * step_s:6.2f} ms a step ({100 * limit_s / step_s:3.0f} % of the limit), "
            f"prefill {found.seconds_prefill:.1f} s of {seconds:.1f} s\n"
        )
        del sampler


if __name__ == "__main__":
    app.run(main)
