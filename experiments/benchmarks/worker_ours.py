"""Worker for agentgym_jax with the tasks `roofline`, `decode`, `multiturn`, `lock_step` and `train`
(worker.py).

Run with the repository on PYTHONPATH.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import worker
from number_episodes import NumberEpisodes
from shapes import SHAPES, is_action, shape_of

from agentgym_jax.algorithms import losses
from agentgym_jax.episodes import batch as batching
from agentgym_jax.learner import train_state
from agentgym_jax.learner.optimizer import make_optimizer
from agentgym_jax.learner.stored_weights import make_adapters
from agentgym_jax.learner.update import make_update, put_batch
from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.lora import TARGETS
from agentgym_jax.models.policy import Policy
from agentgym_jax.native.products import einsum_xla
from agentgym_jax.sampling.options import SamplingOptions, episode_key
from agentgym_jax.sampling.sampler import Sampler


def roofline(options: dict) -> worker.Run:
    """Measures the memory bandwidth and the rate of large products on JAX's default device."""
    del options
    on_cpu = jax.default_backend() == "cpu"
    n, count = (2048, 1 << 27) if on_cpu else (8192, 1 << 30)
    # The form that the decoder uses: XLA on CPU is slower with a bfloat16 result.
    product = jax.jit(lambda x, y: einsum_xla("mk,kn->mn", x, y))

    def read_s() -> float:
        """Returns the seconds that all cores of a host, or the device, need to read `count` float32
        numbers.
        """
        if not on_cpu:
            x, total = jnp.ones(count, jnp.float32), jax.jit(jnp.sum)
            return worker.fastest(lambda: jax.block_until_ready(total(x)))
        parts = np.split(np.ones(count, np.float32), os.cpu_count() or 1)
        with ThreadPoolExecutor(len(parts)) as pool:
            return worker.fastest(lambda: list(pool.map(np.max, parts)))

    def run() -> dict:
        rates = {}
        for dtype in ("float32", "bfloat16"):
            x = jax.random.normal(jax.random.key(0), (n, n)).astype(dtype)
            seconds = worker.fastest(lambda x=x: jax.block_until_ready(product(x, x)))
            rates[dtype] = 2 * n**3 / seconds / 1e9
        device = jax.devices()[0].device_kind
        return dict(device=device, matmul_gflops=rates, read_gbs=4 * count / read_s() / 1e9)

    return run


def network(options: dict) -> tuple[Policy, dict]:
    """Returns a network of the requested shape with random weights in the requested dtype."""
    shape = shape_of(options)
    config = DecoderConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.mlp,
        num_layers=shape.layers,
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        head_size=shape.head,
        rope_theta=1e6,
        norm_eps=1e-6,
        qkv_bias=True,
        tie_embeddings=True,
    )
    chosen = {name: options[name] for name in ("remat", "attention") if name in options}
    policy = Policy(config, dtype=options["dtype"], **chosen)
    params = policy.init(jax.random.key(0))
    found = sum(x.size for x in jax.tree.leaves(params))
    if found != shape.parameters:
        raise ValueError(f"the network has {found} weights, the shape {shape.parameters}")
    return policy, params


def engine(options: dict, *, cache_length: int, buckets, **sampler) -> Sampler:
    """Returns a sampler for a network with random weights."""
    policy, params = network(options)
    made = Sampler(policy, cache_length=cache_length, buckets=buckets, **sampler)
    made.set_params(jax.tree.map(lambda x: x.astype(policy.dtype), params), version=0)
    return made


def decode(options: dict) -> worker.Run:
    """Generates tokens after prompts of equal length at temperature 1, with their
    log-probabilities.
    """
    rows, prompt, new = options["rows"], options["prompt"], options["new"]
    sampler = engine(
        options,
        rows=rows,
        cache_length=prompt + new,
        buckets=[(prompt, min(rows, 8))],
        decode_steps=new,
        return_after_finished=rows,
        stop_ids=[-1],
    )
    shape = SHAPES[options["shape"]]
    prompts = np.random.default_rng(0).integers(0, shape.vocab, (rows, prompt))

    def generate(count: int) -> float:
        started = time.perf_counter()
        sampling = SamplingOptions(
            temperature=1.0, max_turn_tokens=count, max_tokens=prompt + count
        )
        taken = [sampler.open(episode_key(0, 0, "decode", i), sampling) for i in range(rows)]
        # Every call has new prompts, so that no cache holds them.
        for row, tokens in zip(taken, prompts, strict=True):
            sampler.prefill(row, [np.roll(tokens, generate.calls).tolist()])
        generate.calls += 1
        turns = []
        while len(turns) < rows:
            turns += sampler.step()
        if any(len(turn.tokens) != count for turn in turns):
            raise ValueError(f"rows of {[len(turn.tokens) for turn in turns]} tokens")
        for row in taken:
            sampler.close(row)
        return time.perf_counter() - started

    generate.calls = 0

    def run() -> dict:
        whole, first = generate(new), generate(1)
        return dict(whole_s=whole, first_s=first)

    return run


def multiturn_engine(options: dict) -> Sampler:
    """Returns the sampler for episodes of NumberEpisodes."""
    return engine(
        options,
        rows=options["rows"],
        cache_length=options["cache_length"],
        buckets=[(options["observation"] + 16, 4), (options["prompt"] + 16, 4)],
        decode_steps=options["decode_steps"],
        return_after_finished=options["return_after_finished"],
        stop_ids=NumberEpisodes(options).stop_ids,
        decode_rows=options["decode_rows"],
    )


def multiturn(options: dict) -> worker.Run:
    """Runs episodes through the rollout engine as in training: rows keep their caches and do not
    wait for each other.
    """
    episodes = NumberEpisodes(options)
    sampler = multiturn_engine(options)

    def run() -> dict:
        sampler.reset_statistics()
        trajectories, waited = episodes.play(sampler)
        found = sampler.statistics
        kept = sum(len(t.tokens) for t in trajectories)
        unfed = len(trajectories)  # the last token of an episode is not an input of the model
        return dict(
            sampled=found.sampled,
            computed=found.prefilled + found.sampled,
            kept=kept - unfed,
            turns=sum(len(t.turns) for t in trajectories) / len(trajectories),
            occupancy=found.occupancy,
            prefill_occupancy=found.prefill_occupancy,
            decode_s=found.seconds_decode,
            prefill_s=found.seconds_prefill,
            env_wait_s=waited,
        )

    return run


def lock_step(options: dict) -> worker.Run:
    """Runs the same engine in lock step: first all rows sample a turn, then all environments
    answer.

    Every turn prefills the whole history, as in an engine that keeps no cache between turns.
    """
    episodes = NumberEpisodes(options)
    lengths = [
        options["cache_length"] // 2**k for k in range(5) if options["cache_length"] >> k >= 64
    ]
    sampler = engine(
        options,
        rows=options["rows"],
        cache_length=options["cache_length"],
        buckets=[(n, 4) for n in lengths],
        decode_steps=options["decode_steps"],
        return_after_finished=options["rows"],
        stop_ids=episodes.stop_ids,
    )

    def run() -> dict:
        sampler.reset_statistics()
        with ThreadPoolExecutor(options["rows"]) as pool:
            kept = sum(
                episodes.play_lock_step(sampler, pool, first)
                for first in range(0, options["episodes"], options["rows"])
            )
        found = sampler.statistics
        return dict(
            sampled=found.sampled,
            computed=found.prefilled + found.sampled,
            kept=kept,
            occupancy=found.occupancy,
        )

    return run


def train(options: dict) -> worker.Run:
    """Measures one AdamW step on full rows; logits are computed for `vocab_chunk` tokens with a
    loss at a time.
    """
    policy, params = network(options)
    rows, tokens = options["rows"], options["tokens"]
    micro_rows = options["micro_rows"]
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, policy.config.vocab_size, (rows, tokens)).astype(np.int32)
    has_loss = np.asarray(is_action(options)) & (np.arange(tokens) > 0)
    sequences = [
        dict(
            tokens=row,
            action_mask=has_loss,
            weights=np.full(tokens, 1 / (rows * has_loss.sum()), np.float32),
            advantages=np.ones(tokens, np.float32),
            old_logprobs=np.zeros(tokens, np.float32),
        )
        for row in drawn
    ]
    packed = batching.pack(sequences, row_length=tokens, rows_multiple=micro_rows)
    batch = put_batch(batching.micro_batches(packed, micro_rows))
    optimizer = make_optimizer(
        name="adamw",
        learning_rate=1e-5,
        schedule="constant",
        warmup_steps=0,
        total_steps=1,
        final_fraction=1.0,
        moments=options["moments"],
        b1=0.9,
        b2=0.999,
        eps=1e-8,
        weight_decay=1e-4,
        max_grad_norm=None,
    )
    adapters = base = None
    if options["lora_rank"]:
        rank = options["lora_rank"]
        adapters = make_adapters(policy, rank=rank, alpha=2.0 * rank, targets=TARGETS)
        base, params = policy.cast_params(params), adapters.init(jax.random.key(0))
    update = make_update(
        policy,
        optimizer,
        losses.negative_log_likelihood,
        adapters=adapters,
        entropy_coef=0.0,
        kl_coef=0.0,
        kl_kind="k3",
        temperature=1.0,
        logprob_chunk=options["vocab_chunk"],
    )
    states = [train_state.create(adapters or policy, optimizer, params)]
    del params

    def run() -> dict:
        state, metrics = update(states.pop(), batch, base=base)
        jax.block_until_ready(metrics)
        states.append(state)
        return {}

    return run


if __name__ == "__main__":
    worker.serve(
        dict(
            roofline=roofline, decode=decode, multiturn=multiturn, lock_step=lock_step, train=train
        ),
        {"jax": jax.__version__},
    )
