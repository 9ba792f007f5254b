r"""Differences of the log-probabilities of samplers and a float32 learner, on pretrained weights.

  PYTHONPATH=.:envs python experiments/2026-11-28_int8_decoding/gap.py --model=DIR

Each sampler answers four questions with at most 64 tokens each at temperature 1.
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
# (weights, computation of the sampler)
SAMPLERS = (("bfloat16", "bfloat16"), ("int8", "float32"), ("int8", "bfloat16"))
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
    return [(rows[turn.row], turn) for turn in turns]


def main(argv):
    """Prints mean, maximum and quantiles of the differences."""
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
    for weights, dtype in SAMPLERS:
        policy = dataclasses.replace(model.policy, dtype=dtype, is_int8=weights == "int8")
        sampler = Sampler(
            policy,
            rows=4,
            cache_length=192,
            buckets=((64, 4),),
            decode_steps=16,
            return_after_finished=4,
            stop_ids=model.renderer.stop_ids,
        )
        sampler.set_params(
            dataclasses.replace(model, decode_policy=policy).spread(params), version=0
        )
        sampled, learner = [], []
        for prompt, turn in sample(sampler, prompts):
            scores = score_tokens(model.policy, params, [*prompt, *turn.tokens.tolist()])
            learner.append(scores.logprobs[len(prompt) - 1 :])
            sampled.append(turn.logprobs)
        learner, sampled = np.concatenate(learner), np.concatenate(sampled)
        gap = np.abs(learner - sampled)
        factor = truncated(learner, sampled, np.zeros(len(gap), int), cap=2.0)
        sys.stdout.write(
            f"{weights} weights, {dtype} computation: {len(gap)} tokens, gap mean {gap.mean():.4f}, "
            f"median {np.median(gap):.4f}, 99 % {np.quantile(gap, 0.99):.3f}, max {gap.max():.3f} "
            f"nats; mean ratio {np.exp(learner - sampled).mean():.3f}, capped at 2: "
            f"{np.mean(factor >= 2.0):.3f}; mean sampled {sampled.mean():.3f}\n"
        )
        sys.stdout.flush()
        sampler.release()


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    app.run(main)
