r"""Measures the cost of scoring and of an optimiser step on the episodes of a recorded run,
compared with the machine's limit.

  PYTHONPATH=. python experiments/benchmarks/update_step.py --run=runs/quickstart --step=20

Network and shapes are those of configs/quickstart.py; the flags change the shapes. The limit is the
time of the matrix products of these tokens at the speed of one large float32 product. Run the
script alone on the machine, and compare only numbers of one session. Each result is the median of
several repetitions.
"""

import functools
import time

import jax
import numpy as np
from absl import app, flags

from agentgym_jax.algorithms import losses
from agentgym_jax.episodes import batch as batching
from agentgym_jax.episodes.trajectory import from_record
from agentgym_jax.learner import train_state
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.update import make_score, make_update, put_batch
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.policy import Policy
from agentgym_jax.runs.run_folder import RunFolder
from configs import quickstart

_RUN = flags.DEFINE_string("run", None, "Run folder whose episodes are used.", required=True)
_STEP = flags.DEFINE_integer("step", 20, "Step of that run.")
_ROW_LENGTH = flags.DEFINE_integer("row_length", 0, "Tokens of a row; 0: as in the config.")
_MICRO_ROWS = flags.DEFINE_integer("micro_rows", 0, "Rows of a micro-batch; 0: as in the config.")
_CHUNK = flags.DEFINE_integer(
    "logprob_chunk", 0, "Tokens per chunk of logits; 0: as in the config."
)
_REPEATS = flags.DEFINE_integer("repeats", 5, "Number of calls; the median counts.")


def packed_episodes(row_length: int, micro_rows: int) -> batching.TokenBatch:
    """Returns all episodes of the step, packed into rows and micro-batches [M, B, T]."""
    records = RunFolder(_RUN.value).read_trajectories(_STEP.value)
    sequences = []
    for record in records:
        trajectory = from_record(record)
        n = len(trajectory.tokens)
        sequences.append(
            {
                "tokens": trajectory.tokens,
                "action_mask": trajectory.action_mask,
                "weights": np.full(n, 1 / (n * len(records)), np.float32),
                "advantages": np.ones(n, np.float32),
                "old_logprobs": trajectory.logprobs,
            }
        )
    packed = batching.pack(sequences, row_length=row_length, rows_multiple=micro_rows)
    return batching.micro_batches(packed, micro_rows)


def median_seconds(call) -> float:
    """Returns the median seconds of several calls, after a first call that compiles."""
    seconds = []
    for _ in range(_REPEATS.value + 1):
        started = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds[1:]))


def matmul_gflops() -> float:
    """Returns the measured GFLOP/s of one large float32 product."""
    a = jax.random.normal(jax.random.key(0), (2048, 2048))
    product = jax.jit(lambda a: a @ a)
    return 2 * 2048**3 / median_seconds(lambda: product(a)) / 1e9


def gflop_per_token(config: DecoderConfig, batch: batching.TokenBatch) -> float:
    """Returns the minimum work of a forward pass per token, from weights, visible keys and logits
    of action tokens.
    """
    D, F = config.hidden_size, config.intermediate_size
    heads = config.num_heads * config.head_size
    layer = D * (2 * heads + 2 * config.num_kv_heads * config.head_size) + 3 * D * F
    tokens = np.sum(batch.segment_ids > 0)
    keys = np.sum((batch.positions + 1) * (batch.segment_ids > 0)) / tokens
    logits = np.sum(batch.action_mask) / tokens * D * config.vocab_size
    return 2e-9 * (config.num_layers * (layer + 2 * keys * heads) + logits)


def main(argv):
    del argv
    c = quickstart.get_config()
    row_length = _ROW_LENGTH.value or c.learner.row_length
    chunk = _CHUNK.value or c.algorithm.logprob_chunk
    config = DecoderConfig(vocab_size=c.tokenizer.vocab_size, **c.model.architecture)
    policy = Policy(config, remat=c.model.remat)
    optimizer = make_optimizer(**c.optimizer, total_steps=c.total_steps)
    options = dict(temperature=1.0, logprob_chunk=chunk)
    update = make_update(
        policy,
        optimizer,
        functools.partial(losses.clipped_surrogate, **c.algorithm.loss),
        entropy_coef=0.0,
        kl_coef=0.0,
        kl_kind="k3",
        **options,
    )
    score = make_score(policy, **options)
    batch = packed_episodes(row_length, _MICRO_ROWS.value or c.learner.micro_rows)
    tokens = int(np.sum(batch.segment_ids > 0))
    parts = [put_batch(jax.tree.map(lambda x, m=m: x[m], batch)) for m in range(len(batch.tokens))]
    whole = put_batch(batch)
    params = policy.init(jax.random.key(0))
    states = [train_state.create(policy, optimizer, params)]

    def step():
        state, metrics = update(states.pop(), whole)
        states.append(state)
        return metrics

    gflops = matmul_gflops()
    forward = gflop_per_token(config, batch) * tokens / gflops
    print(f"{tokens} tokens in {batch.tokens.shape} rows, {np.sum(batch.action_mask)} of actions;")
    print(f"large product {gflops:.0f} GFLOP/s")
    for name, limit, call in (
        ("update", 3 * forward, step),
        ("score", forward, lambda: [score(params, part) for part in parts]),
    ):
        seconds = median_seconds(call)
        print(
            f"{name}: {seconds:.2f} s, {tokens / seconds:.0f} tokens/s, {seconds / limit:.1f} x limit"
        )


if __name__ == "__main__":
    app.run(main)
