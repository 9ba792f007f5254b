"""Writes the golden decoders: tiny random Hugging Face checkpoints with the logits of transformers.

    python tests/golden/decoder/make_golden.py        # needs torch and transformers

There is one small decoder per family, each with a special property. qwen2 has tied embeddings and
one weight file. qwen3 has untied embeddings, is stored in bfloat16 and has heads wider than hidden_size / num_heads.
llama is split into several files with an index and has the llama3 rope scaling. `logits.npz` next
to each checkpoint contains the ids and the float32 logits. The files were written with torch 2.13
and transformers 5.23.
"""

import pathlib
import shutil

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).parent
COMMON = dict(
    vocab_size=160,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    initializer_range=0.3,  # large enough that attention and the gates affect the logits
)
FAMILIES = {
    "qwen2": transformers.Qwen2Config(
        **COMMON,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    ),
    "qwen3": transformers.Qwen3Config(
        **COMMON,
        head_dim=16,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    ),
    "llama": transformers.LlamaConfig(
        **COMMON,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
}
SHARD_SIZE = {"qwen2": "1GB", "qwen3": "1GB", "llama": "60KB"}
STORED_DTYPE = {"qwen2": torch.float32, "qwen3": torch.bfloat16, "llama": torch.float32}


def randomise_vectors(model: torch.nn.Module) -> None:
    """Adds noise to norms and biases.

    Otherwise all norms are 1 and all biases 0, so a test could not notice exchanged ones.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))


def main() -> None:
    """Writes the checkpoints of all families."""
    for seed, (family, config) in enumerate(FAMILIES.items()):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        randomise_vectors(model)
        model = model.to(STORED_DTYPE[family])
        directory = HERE / family
        shutil.rmtree(directory, ignore_errors=True)
        model.save_pretrained(directory, max_shard_size=SHARD_SIZE[family])
        (directory / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(0, config.vocab_size, (2, 100))
        # The model is loaded again, because the cast above also rounded its rotary frequencies.
        model = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager"
        )
        with torch.no_grad():
            logits = model.eval()(tokens).logits
        np.savez_compressed(
            directory / "logits.npz",
            tokens=tokens.numpy().astype(np.int32),
            # logits of every ninth position suffice
            logits=logits.numpy()[:, ::9].astype(np.float32),
        )


if __name__ == "__main__":
    main()
