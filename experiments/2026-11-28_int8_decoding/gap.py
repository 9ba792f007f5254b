r"""Differences of the log-probabilities of samplers and a float32 learner, on pretrained weights.

  PYTHONPATH=.:envs python experiments/2026-11-28_int8_decoding/gap.py --model=DIR

A bfloat16 sampler answers four questions with at most 64 tokens each at temperature 1. The int8
policies score these tokens: decoding gives the values of teacher forcing (tests/models/test_int8.py).
"""

import dataclasses
import sys

import jax
import numpy as np
from absl import app, flags

from agentgym_jax.config.model import ModelSettings, load_source
from agentgym_jax.learner.importance import truncated
from agentgym_jax.sampling.options import SamplingOptions, episode_key
from agentgym_jax.sampling.sampler import Sampler
from agentgym_jax.serving.text_scores import score_tokens

MODEL = flags.DEFINE_string("model", None, "Hugging Face directory.", required=True)
QUESTIONS = (
    "Name three ways to sort a list and say when each is best.",
    "You stand in a kitchen with a fridge, a sink and a cabinet. Find a clean mug. What do you do?",
    "Write a Python function that returns the n-th Fibonacci number.",
    "A train leaves at 9:40 and arrives at 13:05. How long does it take?",
)
# Type of the computation of each policy with int8 weights.
INT8_COMPUTATION = ("float32", "bfloat16")
OPTIONS = SamplingOptions(temperature=1.0, max_turn_tokens=64, max_tokens=192)


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
        cache_length=192,
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
        policy = dataclasses.replace(model.policy, dtype=dtype, is_int8=True)
        weights = dataclasses.replace(model, decode_policy=policy).spread(params)
        report(f"int8, {dtype} computation", score(policy, weights, sampled), learner)


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    app.run(main)
