r"""Differences of the log-probabilities of samplers and a float32 learner, on pretrained weights.

  PYTHONPATH=.:envs python experiments/2026-11-28_int8_decoding/gap.py --model=DIR

A bfloat16 sampler answers four questions with at most 64 tokens each at temperature 1. The int8
policies score these tokens: decoding gives the values of teacher forcing (tests/models/test_int8.py).
Policies with an int8 cache score them through a cache.
"""

import dataclasses
import functools
import sys

import jax
import numpy as np
from absl import app, flags

from agentgym_jax.config.model import ModelSettings, load_source
from agentgym_jax.learner.importance import truncated
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.token_logprobs import token_logprobs
from agentgym_jax.sampling.options import SamplingOptions, episode_key
from agentgym_jax.sampling.sampler import Sampler
from agentgym_jax.serving.text_scores import score_tokens

MODEL = flags.DEFINE_string("model", None, "Hugging Face directory.", required=True)
CACHE_ONLY = flags.DEFINE_bool("cache_only", False, "Whether to leave int8 weights out.")
QUESTIONS = (
    "Name three ways to sort a list and say when each is best.",
    "You stand in a kitchen with a fridge, a sink and a cabinet. Find a clean mug. What do you do?",
    "Write a Python function that returns the n-th Fibonacci number.",
    "A train leaves at 9:40 and arrives at 13:05. How long does it take?",
)
# Type of the computation of each policy with int8 weights.
INT8_COMPUTATION = ("float32", "bfloat16")
SLOTS = 192
OPTIONS = SamplingOptions(temperature=1.0, max_turn_tokens=64, max_tokens=SLOTS)


def sample(sampler, prompts):
    """Returns (prompt, turn) of every prompt."""
    rows = {}
    for number, prompt in enumerate(prompts):
        row = sampler.open(episode_key(0, 0, f"question {number}", 0), OPTIONS)
        sampler.prefill(row, [prompt])
        rows[row] = prompt
    turns = []
    while len(turns) < len(rows):
        turns += sampler.step()
    for row in rows:
        sampler.close(row)
    return [(rows[turn.row], turn) for turn in turns]


def score(policy, params, sampled):
    """Returns the log-probabilities of the sampled tokens under a policy."""
    parts = []
    for prompt, turn in sampled:
        scores = score_tokens(policy, params, [*prompt, *turn.tokens.tolist()])
        parts.append(scores.logprobs[len(prompt) - 1 :])
    return np.concatenate(parts)


@functools.partial(jax.jit, static_argnums=0)
def score_row(policy, params, tokens_1S, positions_1S):
    """Returns the log-probabilities of tokens 1 to S - 1 of a row, computed with a cache."""
    cache = KVCache.create(policy.config, 1, SLOTS, policy.cache_dtype)
    hidden, _ = policy.hidden_cached(params, tokens_1S, positions_1S, cache)
    scored = token_logprobs(policy, params, hidden, tokens_1S, temperature=1.0, chunk_size=64)
    return scored.logprob_BT[0]


def score_cached(policy, params, sampled):
    """Returns the log-probabilities of the sampled tokens under a policy with its cache."""
    parts = []
    for prompt, turn in sampled:
        tokens = [*prompt, *turn.tokens.tolist()]
        row = np.zeros((1, SLOTS), np.int32)
        row[0, : len(tokens)] = tokens
        place = np.arange(SLOTS)[None]
        found = score_row(policy, params, row, np.where(place < len(tokens), place, SLOTS))
        parts.append(found[len(prompt) : len(tokens)])
    return np.concatenate(parts)


def report(name, found, learner):
    """Prints mean, maximum and quantiles of the differences."""
    gap = np.abs(learner - found)
    factor = truncated(learner, found, np.zeros(len(gap), int), cap=2.0)
    sys.stdout.write(
        f"{name}: {len(gap)} tokens, gap mean {gap.mean():.4f}, median {np.median(gap):.4f}, "
        f"99 % {np.quantile(gap, 0.99):.3f}, max {gap.max():.3f} nats; capped at 2: "
        f"{np.mean(factor >= 2.0):.3f}; mean log-probability {found.mean():.3f}\n"
    )
    sys.stdout.flush()


def main(argv):
    """Samples with bfloat16 weights and scores these tokens with each policy."""
    del argv
    settings = ModelSettings(
        source=MODEL.value, dtype="float32", decode_dtype="bfloat16", remat="none"
    )
    model = load_source(settings, lambda hybrid: (None, None))
    params = model.initial_params()
    prompts = [
        sum(model.renderer.opening([{"role": "user", "content": question}]), [])
        for question in QUESTIONS
    ]
    sampler = Sampler(
        model.decode_policy,
        rows=4,
        cache_length=SLOTS,
        buckets=((64, 4),),
        decode_steps=16,
        return_after_finished=4,
        stop_ids=model.renderer.stop_ids,
    )
    sampler.set_params(model.spread(params), version=0)
    sampled = sample(sampler, prompts)
    sampler.release()
    learner = score(model.policy, params, sampled)
    report("bfloat16", np.concatenate([turn.logprobs for _, turn in sampled]), learner)
    for dtype in INT8_COMPUTATION:
        policy = dataclasses.replace(model.policy, dtype=dtype, has_int8_cache=True)
        weights = dataclasses.replace(model, decode_policy=policy).spread(params)
        found = score_cached(policy, weights, sampled)
        report(f"int8 cache, {dtype} computation", found, learner)
    if CACHE_ONLY.value:
        return
    for dtype in INT8_COMPUTATION:
        policy = dataclasses.replace(model.policy, dtype=dtype, is_int8=True)
        weights = dataclasses.replace(model, decode_policy=policy).spread(params)
        report(f"int8, {dtype} computation", score(policy, weights, sampled), learner)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    app.run(main)
