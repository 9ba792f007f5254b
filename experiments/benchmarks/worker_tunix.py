"""Worker for tunix with the tasks `decode`, `multiturn` and `train` (worker.py).

Needs google-tunix (written for 0.1.7); of this project it needs only the pure Python files in this
folder.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import late_answers
import numpy as np
import optax
import worker
from flax import nnx
from shapes import is_action, shape_of
from tunix.generate import sampler as tunix_sampler
from tunix.models.qwen2 import model as qwen2
from tunix.sft import peft_trainer
from tunix.sft import utils as sft_utils


class Numbers:
    """Tokenizer whose text is the token ids, so that no text has a special meaning."""

    def __init__(self, vocab: int):
        self._vocab = vocab

    def encode(self, text: str, **_) -> list[int]:
        """Returns the token ids that a text lists."""
        return [int(word) for word in text.split()]

    def decode(self, ids, **_) -> str:
        """Returns a text that lists the token ids."""
        return " ".join(str(i) for i in ids)

    def bos_id(self) -> int:
        """Returns 0; no such token is added."""
        return 0

    def eos_id(self) -> int:
        """Returns an id that the sampler never draws."""
        return self._vocab + 1

    def pad_id(self) -> int:
        """Returns the last id of the vocabulary."""
        return self._vocab - 1


def network(options: dict):
    """Returns a network with random weights and matrices of standard deviation 0.02 (tunix's own
    initialisation has zeros in the MLP).
    """
    shape, dtype = shape_of(options), jnp.dtype(options["dtype"])
    config = qwen2.ModelConfig(
        num_layers=shape.layers,
        vocab_size=shape.vocab,
        embed_dim=shape.hidden,
        hidden_dim=shape.mlp,
        num_heads=shape.heads,
        head_dim=shape.head,
        num_kv_heads=shape.kv_heads,
        rope_theta=1_000_000,
        norm_eps=1e-6,
        use_tied_embedding=True,
        remat_config=qwen2.RematConfig.NONE,
        dtype=dtype,
        param_dtype=dtype,
    )
    model = qwen2.Qwen2(config, rngs=nnx.Rngs(0))
    leaves, tree = jax.tree.flatten(nnx.state(model, nnx.Param))
    keys = jax.random.split(jax.random.key(0), len(leaves))
    drawn = [
        (0.02 * jax.random.normal(key, x.shape)).astype(x.dtype) if x.ndim > 1 else x
        for key, x in zip(keys, leaves, strict=True)
    ]
    nnx.update(model, jax.tree.unflatten(tree, drawn))
    found = sum(x.size for x in drawn)
    if found != shape.parameters:
        raise ValueError(f"the network has {found} weights, the shape {shape.parameters}")
    return model, config, shape


def engine(model, config, shape, cache_length: int):
    """Returns tunix's in-process sampler for a model."""
    cache = tunix_sampler.CacheConfig(
        cache_size=cache_length,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
    )
    return tunix_sampler.Sampler(model, Numbers(shape.vocab), cache)


def decode(options: dict) -> worker.Run:
    """Generates tokens after prompts of equal length at temperature 1, with their
    log-probabilities.
    """
    model, config, shape = network(options)
    sampler = engine(model, config, shape, options["prompt"] + options["new"])
    size = (options["rows"], options["prompt"])
    prompts = np.random.default_rng(0).integers(1, shape.vocab - 10, size)
    texts = [" ".join(map(str, row)) for row in prompts]

    def generate(count: int) -> float:
        started = time.perf_counter()
        out = sampler(
            texts,
            max_generation_steps=count,
            max_prompt_length=options["prompt"],
            eos_tokens=[shape.vocab + 1],
            temperature=1.0,
            top_p=1.0,
            return_logprobs=True,
            seed=1,
        )
        if any(len(tokens) != count for tokens in out.tokens):
            raise ValueError(f"tunix gave rows of {[len(t) for t in out.tokens]} tokens")
        return time.perf_counter() - started

    def run() -> dict:
        whole, first = generate(options["new"]), generate(1)
        return dict(whole_s=whole, first_s=first)

    return run


def multiturn(options: dict) -> worker.Run:
    """Runs episodes as tunix's agentic learner does: in threads, with one conversation per call.

    Every turn prefills the whole history and requests the rest of the episode's tokens.
    """
    model, config, shape = network(options)
    sampler = engine(model, config, shape, options["cache_length"])
    last_stop = shape.vocab // options["turn_tokens"]
    stops = list(range(1, last_stop))

    def episode(seed: int) -> tuple[int, int, int]:
        rng, number = np.random.default_rng(seed), seed % options["episodes"]
        history = rng.integers(last_stop + 1, shape.vocab - 10, options["prompt"]).tolist()
        sampled = computed = 0
        for turn in range(late_answers.turns(options, number)):
            room = options["budget"] - (len(history) - options["prompt"])
            if room <= 0:
                break
            out = sampler(
                [" ".join(map(str, history))],
                max_generation_steps=room,
                max_prompt_length=options["prompt"],
                eos_tokens=stops,
                temperature=1.0,
                top_p=1.0,
                return_logprobs=True,
                seed=1000 * seed + turn,
            )
            action = out.tokens[0].tolist()
            time.sleep(late_answers.delay_s(options, number, turn + 1))
            sampled += len(action) + 1
            computed += len(history) + len(action)
            history += (
                action
                + rng.integers(last_stop + 1, shape.vocab - 10, options["observation"]).tolist()
            )
        return sampled, computed, len(history)

    first = iter(range(0, 10**9, options["episodes"]))

    def run() -> dict:
        start = next(first)
        with ThreadPoolExecutor(options["concurrency"]) as pool:
            counts = list(pool.map(episode, range(start, start + options["episodes"])))
        sampled, computed, kept = (sum(column) for column in zip(*counts, strict=True))
        return dict(sampled=sampled, computed=computed, kept=kept)

    return run


def train(options: dict) -> worker.Run:
    """Measures one AdamW step of tunix's trainer on full rows."""
    model, _, shape = network(options)
    settings = peft_trainer.TrainingConfig(eval_every_n_steps=10**9, max_steps=10**9)
    trainer = peft_trainer.PeftTrainer(model, optax.adamw(1e-5), settings)
    size = (options["rows"], options["tokens"])
    ids = np.random.default_rng(0).integers(1, shape.vocab - 10, size).astype(np.int32)
    mask = jnp.ones(size, bool)
    batch = dict(
        input_tokens=jnp.asarray(ids),
        # token weights of tunix's loss
        input_mask=mask & jnp.asarray(is_action(options))[None],
        positions=sft_utils.build_positions_from_mask(mask),
        attention_mask=sft_utils.make_causal_attn_mask(mask),
    )
    step, _ = trainer.jit_train_and_eval_step(cache_nnx_graph=True)

    def run() -> dict:
        _, _, norm = step(batch)
        jax.block_until_ready(norm)
        return {}

    return run


if __name__ == "__main__":
    worker.serve(dict(decode=decode, multiturn=multiturn, train=train), {"jax": jax.__version__})
