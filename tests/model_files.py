"""Hugging Face directories of tiny models."""

import jax
import numpy as np

from agentgym_jax.models import peft_files
from agentgym_jax.models.lora import Adapters
from agentgym_jax.models.policy import Policy
from agentgym_jax.models.weights import save_hf
from agentgym_jax.text.tokenizer import byte_tokenizer


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
