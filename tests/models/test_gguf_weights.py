import dataclasses
import math

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from agentgym_jax.models import gguf_weights
from agentgym_jax.models.policy import Policy
from tests.builders import decoder_config, decoder_families

# All widths are multiples of 32, the block size of Q8_0.
CONFIGS = decoder_families(
    decoder_config(
        vocab_size=48, hidden_size=64, intermediate_size=96, head_size=16, max_position=512
    ),
    qwen3=dict(head_size=32, max_position=32768),
    llama=dict(rope_theta=5e5, norm_eps=1e-5, max_position=32768),
)
BLOCK_MATRICES = {
    "attn_q": ("attention", "q_kernel"),
    "attn_k": ("attention", "k_kernel"),
    "attn_v": ("attention", "v_kernel"),
    "attn_output": ("attention", "o_kernel"),
    "ffn_gate": ("mlp", "gate_kernel"),
    "ffn_up": ("mlp", "up_kernel"),
    "ffn_down": ("mlp", "down_kernel"),
}
BLOCK_VECTORS = {
    "attn_norm.weight": ("attention_norm", "scale"),
    "ffn_norm.weight": ("mlp_norm", "scale"),
    "attn_q.bias": ("attention", "q_bias"),
    "attn_k.bias": ("attention", "k_bias"),
    "attn_v.bias": ("attention", "v_bias"),
    "attn_q_norm.weight": ("attention", "q_norm"),
    "attn_k_norm.weight": ("attention", "k_norm"),
}


def random_params(config, seed=0):
    leaves, tree = jax.tree.flatten(Policy(config).abstract_params())
    rng = np.random.default_rng(seed)
    return tree.unflatten([rng.normal(size=x.shape).astype(np.float32) for x in leaves])


def interleaved(matrix, heads):
    """Returns q or k in llama.cpp's row order: rows 0, H/2, 1, H/2 + 1, ... of each head."""
    H = matrix.shape[0] // heads
    order = [
        head * H + half * H // 2 + i
        for head in range(heads)
        for i in range(H // 2)
        for half in (0, 1)
    ]
    return matrix[order]


def gguf_tensors(arch, config, params):
    """Returns tensors by GGUF name, in the layout that llama.cpp's converter writes."""
    D = config.hidden_size
    tensors = {
        "token_embd.weight": params["embed"]["embedding"],
        "output_norm.weight": params["final_norm"]["scale"],
    }
    if not config.tie_embeddings:
        tensors["output.weight"] = params["unembed"]["kernel"].T
    for layer in range(config.num_layers):
        for name, (part, key) in BLOCK_MATRICES.items():
            kernel = params["layers"][part][key][layer]
            if name == "attn_output":
                matrix = kernel.reshape(-1, D).T
            else:
                matrix = kernel.reshape(kernel.shape[0], -1).T
            if arch == "llama" and name in ("attn_q", "attn_k"):
                heads = config.num_heads if name == "attn_q" else config.num_kv_heads
                matrix = interleaved(matrix, heads)
            tensors[f"blk.{layer}.{name}.weight"] = matrix
        for name, (part, key) in BLOCK_VECTORS.items():
            if key in params["layers"][part]:
                tensors[f"blk.{layer}.{name}"] = params["layers"][part][key][layer].reshape(-1)
    return tensors


def llama3_divisors(config):
    """Returns one divisor per frequency, computed one frequency at a time."""
    divisors = []
    for i in range(0, config.head_size, 2):
        wavelength = 2 * math.pi * config.rope_theta ** (i / config.head_size)
        if wavelength < 8192 / 4:
            divisors.append(1.0)
        elif wavelength > 8192:
            divisors.append(config.rope_scaling.factor)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            divisors.append(1 / ((1 - smooth) / config.rope_scaling.factor + smooth))
    return np.array(divisors, np.float32)


def write_gguf(path, arch, config, params, quantised=(), extra=None):
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_position)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_size)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    tensors = gguf_tensors(arch, config, params)
    if config.rope_scaling is not None:
        tensors["rope_freqs.weight"] = llama3_divisors(config)
    tensors.update(extra or {})
    for name, value in tensors.items():
        value = np.ascontiguousarray(value)
        if name in quantised:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("arch", CONFIGS)
def test_config_and_weights_of_a_gguf_file_are_those_it_was_written_from(arch, tmp_path):
    config = CONFIGS[arch]
    params = random_params(config)
    path = write_gguf(tmp_path / "m.gguf", arch, config, params)
    assert gguf_weights.read_config(path) == config
    loaded = gguf_weights.load_gguf(path, Policy(config))
    for (name, x), (_, y) in zip(
        flatten_dict(loaded).items(), flatten_dict(params).items(), strict=True
    ):
        assert np.array_equal(np.asarray(x), y), name


def test_quantised_tensors_round_trip_within_half_a_step_of_their_block(tmp_path):
    config = CONFIGS["qwen2"]
    params = random_params(config)
    names = {"token_embd.weight", "blk.1.ffn_down.weight"}
    path = write_gguf(tmp_path / "m.gguf", "qwen2", config, params, quantised=names)
    loaded = gguf_weights.load_gguf(path, Policy(config))
    for found, written in [
        (loaded["embed"]["embedding"], params["embed"]["embedding"]),
        (loaded["layers"]["mlp"]["down_kernel"][1].T, params["layers"]["mlp"]["down_kernel"][1].T),
    ]:
        blocks = written.reshape(-1, 32)
        step = np.abs(blocks).max(1, keepdims=True) / 127
        bound = step * (0.5 + 127 * 2**-11)  # the step size itself is stored as float16
        error = np.abs(np.asarray(found).reshape(-1, 32) - blocks)
        assert np.all(error <= bound) and np.max(error) > 0
    assert np.array_equal(
        loaded["layers"]["mlp"]["down_kernel"][0], params["layers"]["mlp"]["down_kernel"][0]
    )


def stored_head(path, embedding, head, head_kind):
    """Writes a qwen2 file whose output head has the given type; the embedding is Q8_0."""
    config = CONFIGS["qwen2"]
    params = random_params(config)
    params["embed"]["embedding"] = embedding
    names = {"token_embd.weight", *(["output.weight"] if head_kind == "Q8_0" else [])}
    if head_kind == "F16":
        head = head.astype(np.float16)
    extra = {"output.weight": head}
    return write_gguf(path, "qwen2", config, params, quantised=names, extra=extra)


@pytest.mark.parametrize("head_kind", ["F32", "F16", "Q8_0"])
def test_a_head_that_repeats_the_embedding_is_tied_and_the_finer_of_the_two_is_kept(
    head_kind, tmp_path
):
    table = np.random.default_rng(5).normal(size=(48, 64)).astype(np.float32)
    path = stored_head(tmp_path / "m.gguf", table, table, head_kind)
    config = gguf_weights.read_config(path)
    assert config == CONFIGS["qwen2"] and config.tie_embeddings
    loaded = gguf_weights.load_gguf(path, Policy(config))
    assert "unembed" not in loaded
    error = np.abs(np.asarray(loaded["embed"]["embedding"]) - table).max()
    assert error <= {"F32": 0.0, "F16": 2e-3, "Q8_0": 0.02}[head_kind]


def test_a_head_that_differs_by_more_than_rounding_is_untied(tmp_path):
    rng = np.random.default_rng(6)
    table = rng.normal(size=(48, 64)).astype(np.float32)
    head = table + 0.05 * rng.normal(size=(48, 64)).astype(np.float32)
    path = stored_head(tmp_path / "m.gguf", table, head, "Q8_0")
    config = gguf_weights.read_config(path)
    assert not config.tie_embeddings
    assert "unembed" in gguf_weights.load_gguf(path, Policy(config))


def test_a_llama_file_with_biases_is_a_decoder_with_biases(tmp_path):
    """Checks that biases are restored; the converter reorders them like the rows of their matrices."""
    config = dataclasses.replace(CONFIGS["qwen2"], rope_theta=1e4)
    params = random_params(config)
    extra = {"blk.0.attn_output.bias": np.zeros(64, np.float32)}
    for layer in range(2):
        for name, heads in (("q", 4), ("k", 2)):
            bias = params["layers"]["attention"][f"{name}_bias"][layer].reshape(-1, 1)
            extra[f"blk.{layer}.attn_{name}.bias"] = interleaved(bias, heads).reshape(-1)
    path = write_gguf(tmp_path / "m.gguf", "llama", config, params, extra=extra)
    assert gguf_weights.read_config(path) == config
    loaded = gguf_weights.load_gguf(path, Policy(config))
    for (name, x), (_, y) in zip(
        flatten_dict(loaded).items(), flatten_dict(params).items(), strict=True
    ):
        assert np.array_equal(np.asarray(x), y), name


def test_a_gguf_file_that_was_cut_off_is_named(tmp_path):
    config = CONFIGS["qwen2"]
    path = write_gguf(tmp_path / "m.gguf", "qwen2", config, random_params(config))
    content = path.read_bytes()
    cuts = {len(content) - 5000: "is cut off: it has", 300: "cut off near", 3: "is not a GGUF file"}
    for kept, message in cuts.items():
        path.write_bytes(content[:kept])
        with pytest.raises(ValueError, match=rf"m\.gguf.* {message}"):
            gguf_weights.read_config(path)


def test_rows_are_decoded_in_pieces_without_a_seam(tmp_path, monkeypatch):
    config = CONFIGS["qwen2"]
    names = {"token_embd.weight", "blk.0.ffn_up.weight"}
    params = random_params(config)
    path = write_gguf(tmp_path / "m.gguf", "qwen2", config, params, quantised=names)
    whole = gguf_weights.load_gguf(path, Policy(config))
    monkeypatch.setattr(gguf_weights, "_ROWS_AT_ONCE", 7)
    pieces = gguf_weights.load_gguf(path, Policy(config))
    assert jax.tree.all(jax.tree.map(lambda x, y: bool(jnp.all(x == y)), whole, pieces))


def test_another_architecture_is_refused_by_name(tmp_path):
    config = CONFIGS["qwen2"]
    path = write_gguf(tmp_path / "m.gguf", "gemma3", config, random_params(config))
    with pytest.raises(
        ValueError, match="'gemma3' is not supported; supported: qwen2, qwen3, llama"
    ):
        gguf_weights.read_config(path)


def test_a_tensor_the_decoder_does_not_know_is_reported_under_its_own_name(tmp_path):
    config = CONFIGS["qwen2"]
    extra = {"blk.0.ffn_gate_inp.weight": np.zeros((4, 64), np.float32)}
    path = write_gguf(tmp_path / "m.gguf", "qwen2", config, random_params(config), extra=extra)
    with pytest.raises(ValueError, match=r"1 unexpected: blk\.0\.ffn_gate_inp\.weight"):
        gguf_weights.load_gguf(path, Policy(config))


def test_rope_divisors_that_are_not_those_of_llama3_are_refused(tmp_path):
    config = CONFIGS["llama"]
    extra = {"rope_freqs.weight": np.linspace(1, 8, 8, dtype=np.float32)}
    path = write_gguf(tmp_path / "m.gguf", "llama", config, random_params(config), extra=extra)
    with pytest.raises(ValueError, match=r"frequencies of rope_freqs\.weight are not those"):
        gguf_weights.read_config(path)


def test_undoing_the_row_order_of_llama_files_inverts_the_converter():
    matrix = np.arange(2 * 6 * 3).reshape(12, 3)
    assert interleaved(matrix, 2)[:, 0].tolist()[:6] == [0, 9, 3, 12, 6, 15]
    assert np.array_equal(gguf_weights.rotary_halves(interleaved(matrix, 2), 2), matrix)


def test_parameters_of_a_gguf_file_may_be_bfloat16(tmp_path):
    config = CONFIGS["qwen3"]
    path = write_gguf(tmp_path / "m.gguf", "qwen3", config, random_params(config))
    loaded = gguf_weights.load_gguf(path, Policy(config), dtype="bfloat16")
    expected = jax.tree.map(lambda x: jnp.asarray(x).astype(jnp.bfloat16), random_params(config))
    assert jax.tree.all(jax.tree.map(lambda x, y: bool(jnp.all(x == y)), loaded, expected))
