"""A real checkpoint in this package and in transformers; both compute in float32 on the CPU.

    AGENTGYM_JAX_REAL_MODEL=DIR pytest tests/parity/test_real_model.py

DIR is a Hugging Face directory with a tokenizer.
"""

import dataclasses
import functools
import logging
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from agentgym_jax.models import sources
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.policy import Policy

pytestmark = pytest.mark.timeout(1800)

NEW_TOKENS = 64
ATOL = 1e-3
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):",
    "import numpy as np\n\ndef softmax(x):",
    "Once upon a time, in a village by the sea,",
    "1, 1, 2, 3, 5, 8,",
    "Water boils at a temperature of",
    "SELECT name, COUNT(*) FROM orders",
    "The three laws of thermodynamics say that",
    "Q: How many legs do two spiders have?\nA:",
    "class Stack:\n    def __init__(self):",
    "To craft a wooden pickaxe, you first need",
    "Die Hauptstadt von Italien ist",
    "春天来了,",
    "for (int i = 0; i < n; i++) {",
    "You see a red door in front of you. You turn left and",
    "#!/bin/bash\n# count the lines of every file\n",
    "In the beginning the universe was",
    "assert sorted([3, 1, 2]) ==",
    "Dear Sir or Madam,\n\nI am writing to",
    "x^2 - 5x + 6 = 0 has the solutions",
)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One model, loaded by both libraries."""

    policy: Policy
    params: Any
    reference: Any
    tokenizer: Any


@pytest.fixture(scope="module")
def checkpoint():
    path = os.environ["AGENTGYM_JAX_REAL_MODEL"]
    source = sources.resolve(path)
    policy = Policy(source.config)
    reference = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return Checkpoint(
        policy=policy,
        params=sources.load_params(source, policy),
        reference=reference.eval(),
        tokenizer=transformers.AutoTokenizer.from_pretrained(path),
    )


@functools.partial(jax.jit, static_argnums=(0, 4))
def greedy(policy, params, tokens_BT, length_B, new_tokens):
    """Returns the greedy ids [B, new_tokens] after the first `length_B` tokens of each row.

    The rows are padded on the right side.
    """
    B, T = tokens_BT.shape
    S = T + new_tokens
    cache = KVCache.create(policy.config, B, S, policy.dtype)
    positions_BT = jnp.broadcast_to(jnp.arange(T), (B, T))
    positions_BT = jnp.where(positions_BT < length_B[:, None], positions_BT, S)
    hidden_BTD, cache = policy.hidden_cached(params, tokens_BT, positions_BT, cache)
    last_BD = hidden_BTD[jnp.arange(B), length_B - 1]

    def step(carry, i):
        hidden_BD, cache = carry
        token_B = jnp.argmax(policy.logits(params, hidden_BD), axis=-1).astype(jnp.int32)
        hidden_B1D, cache = policy.hidden_cached(
            params, token_B[:, None], (length_B + i)[:, None], cache
        )
        return (hidden_B1D[:, 0], cache), token_B

    _, token_TB = jax.lax.scan(step, (last_BD, cache), jnp.arange(new_tokens))
    return token_TB.T


def reference_greedy(checkpoint, encoded):
    """Returns transformers' greedy continuations; the rows are padded on the left side.

    The function does not use `generate`, which would add the repetition penalty of
    generation_config.json.
    """
    longest = max(map(len, encoded))
    tokens_BT = torch.tensor([[0] * (longest - len(ids)) + ids for ids in encoded])
    is_real_BT = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in encoded])
    cache, new = None, []
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            positions_BT = (is_real_BT.cumsum(-1) - 1).clamp(min=0)[:, -tokens_BT.shape[1] :]
            out = checkpoint.reference(
                tokens_BT,
                attention_mask=is_real_BT,
                position_ids=positions_BT,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = out.past_key_values
            tokens_BT = out.logits[:, -1].argmax(-1, keepdim=True)
            is_real_BT = torch.cat([is_real_BT, torch.ones_like(tokens_BT)], dim=1)
            new.append(tokens_BT)
    return torch.cat(new, dim=1).numpy()


def top_two_gap(checkpoint, ids):
    """Returns the gap between the two largest logits of the next token in transformers."""
    with torch.no_grad():
        top = checkpoint.reference(torch.tensor([ids])).logits[0, -1].topk(2).values
    return float(top[0] - top[1])


def test_logits_of_a_real_model_equal_those_of_transformers(checkpoint):
    text = "\n\n".join(PROMPTS)
    ids = np.asarray([checkpoint.tokenizer(text)["input_ids"]])
    with torch.no_grad():
        expected_BTV = checkpoint.reference(torch.asarray(ids)).logits.numpy()
    tokens_BT = jnp.asarray(ids, jnp.int32)
    positions_BT = jnp.arange(ids.shape[1])[None]

    @jax.jit
    def logits(params):
        hidden_BTD = checkpoint.policy.hidden(
            params, tokens_BT, positions_BT, jnp.ones_like(tokens_BT)
        )
        return checkpoint.policy.logits(params, hidden_BTD)

    found_BTV = np.asarray(logits(checkpoint.params))
    logging.info("largest logit difference: %.2e", np.max(np.abs(found_BTV - expected_BTV)))
    np.testing.assert_allclose(found_BTV, expected_BTV, atol=ATOL, rtol=0)


def test_greedy_continuations_of_a_real_model_equal_those_of_transformers(checkpoint):
    encoded = [checkpoint.tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    longest = max(map(len, encoded))
    tokens_BT = np.array([ids + [0] * (longest - len(ids)) for ids in encoded], np.int32)
    length_B = np.array([len(ids) for ids in encoded], np.int32)
    found = np.asarray(
        greedy(checkpoint.policy, checkpoint.params, tokens_BT, length_B, NEW_TOKENS)
    )
    expected = reference_greedy(checkpoint, encoded)
    different = []
    for b, ids in enumerate(encoded):
        if not np.array_equal(found[b], expected[b]):
            t = int(np.argmax(found[b] != expected[b]))
            gap = top_two_gap(checkpoint, [*ids, *expected[b, :t].tolist()])
            different.append(f"{PROMPTS[b]!r} at new token {t} (top-two gap {gap:.2e})")
    assert not different, f"{len(different)} of {len(PROMPTS)} differ: {'; '.join(different)}"
