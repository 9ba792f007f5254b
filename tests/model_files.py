"""Hugging Face directories and run folders of tiny models, and a tokenizer like Qwen2's."""

import json

import jax
import numpy as np
import optax
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from agentgym_jax.learner import train_state
from agentgym_jax.learner.checkpoint import Checkpoints
from agentgym_jax.models import peft_files
from agentgym_jax.models.config import to_hf_config
from agentgym_jax.models.lora import Adapters
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import save_hf
from agentgym_jax.text.tokenizer import QWEN2_WORDS, byte_tokenizer


def zeros(network):
    """Returns weights of the right shapes."""
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), network.abstract_params())


def save_model(folder, params, config, *, name="hf", tokenizer=None, **options):
    """Writes a model with its tokenizer, by default that of bytes; returns the directory."""
    (tokenizer or byte_tokenizer()).save(folder / "tokenizer")
    files = folder / "tokenizer"
    save_hf(params, config, folder / name, dtype="float32", tokenizer_files=files, **options)
    return folder / name


def save_random_model(folder, config, seed=0):
    """Writes a model with random weights; returns the directory."""
    return save_model(folder, Policy(config).init(jax.random.key(seed)), config)


def save_model_and_adapters(folder, config, **options):
    """Writes a model of zeros to `base` and adapters of it to `peft`."""
    policy = Policy(config)
    base = save_model(folder, zeros(policy), config, name="base", **options)
    adapters = Adapters(policy.abstract_params(), policy.logical_axes(), 2, 4.0, ("q", "down"))
    (folder / "peft").mkdir()
    peft_files.save(folder / "peft", adapters, zeros(adapters), base=str(base), dtype="float32")


def save_run(folder, policy, weights):
    """Writes those parts of a run folder that an export reads, except for the tokenizer.

    `weights` has the weights after each step.
    """
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text(json.dumps(to_hf_config(policy.config)))
    (folder / "config.json").write_text(json.dumps({"job": "rl"}))
    (folder / "checkpoints").mkdir()
    with Checkpoints(folder / "checkpoints", max_to_keep=3) as checkpoints:
        for step, params in weights.items():
            checkpoints.save(step, train_state.create(policy, optax.sgd(0.1), params), {})


def train_like_qwen2(texts, special_tokens):
    """Returns a tokenizer of about 400 tokens that splits words like Qwen2's."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(QWEN2_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.add_special_tokens(special_tokens)
    return backend
