r"""Measures the attention kernels for GPU, compared with plain JAX and with cuDNN's attention.

  PYTHONPATH=. python experiments/benchmarks/attention_kernels.py --out=attention_kernels.jsonl

Needs a GPU. The heads are those of Qwen2.5-0.5B (14 queries, 2 keys, size 64) and of Qwen2.5-1.5B
(12, 2, 128). Packed rows are measured as one segment per row and as segments of 512 tokens; cuDNN's
attention knows no segments, so it always computes the whole causal row. `chosen` is the attention of
`model.attention="cudnn"`: cuDNN if no row has a second segment, else the kernel. The rate of attention to
the cache can be compared with the memory bandwidth that roofline.py measures. The error is the norm
of the difference from plain attention in float32, relative to its norm.
"""

import functools
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import side_by_side
from absl import app, flags

from agentgym_jax.models import attention, gpu_backend
from agentgym_jax.models.kernels import gpu_packed_attention, gpu_slot_attention

_OUT = flags.DEFINE_string("out", "", "File that the JSON lines are appended to.")
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["float32", "bfloat16"], "Data type.")
_KERNELS = flags.DEFINE_multi_enum(
    "kernels", ["packed", "slots"], ["packed", "slots"], "Kernels to measure; repeatable."
)
_REPEATS = flags.DEFINE_integer("repeats", 20, "Calls per measurement.", 1)

HEADS = {"0.5b": (14, 2, 64), "1.5b": (12, 2, 128)}
ROWS = ((8, 2048, 2048), (8, 2048, 512), (2, 8192, 8192), (2, 8192, 512))  # rows, tokens, segment
CACHES = ((8, 1, 2048), (64, 1, 2048), (64, 1, 8192), (8, 256, 2048))  # rows, new tokens, slots


def seconds(call, *arrays) -> float:
    """Returns the median seconds of a call, measured over several groups of calls."""
    jax.block_until_ready(call(*arrays))
    found = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(_REPEATS.value):
            result = call(*arrays)
        jax.block_until_ready(result)
        found.append((time.perf_counter() - started) / _REPEATS.value)
    return float(np.median(found))


def error(found, wanted) -> float:
    """Returns the relative error of all arrays together."""
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True))
    off = sum(np.sum((np.float64(x) - np.float64(y)) ** 2) for x, y in pairs)
    return float(np.sqrt(off / sum(np.sum(np.float64(y) ** 2) for _, y in pairs)))


def normal(seed: int, *shape: int) -> jax.Array:
    """Returns random numbers in the type of the measurement."""
    return jax.random.normal(jax.random.key(seed), shape).astype(_DTYPE.value)


def cudnn(q, k, v, ids):
    """Computes causal attention of whole rows with cuDNN."""
    del ids
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")


PACKED = {
    "kernel": gpu_packed_attention.attend_packed,
    "plain": attention.attend_segments,
    "cudnn": cudnn,
    "chosen": functools.partial(gpu_backend.attend_packed, None, use_cudnn=True),
}


def measure_packed(size: str, rows: int, tokens: int, segment: int) -> dict:
    """Returns seconds, rate and error of the forward pass, and of both passes, per library."""
    num_heads, num_kv_heads, head_size = HEADS[size]
    heads = (num_heads, num_kv_heads, num_kv_heads, num_heads)
    *qkv, d_out = (normal(i, rows, tokens, n, head_size) for i, n in enumerate(heads))
    ids = jnp.broadcast_to(1 + jnp.arange(tokens) // segment, (rows, tokens))
    # Products of all visible pairs: 2 in the forward pass and 5 in the backward pass.
    flops = 2 * rows * num_heads * head_size * tokens * segment / 2 * 2

    def passes(attend):
        def both(q, k, v, ids):
            out, pullback = jax.vjp(lambda *x: attend(*x, ids), q, k, v)
            return out, pullback(d_out.astype(out.dtype))

        return jax.jit(attend), jax.jit(both)

    small = [x[:1].astype(jnp.float32) for x in qkv], d_out[:1].astype(jnp.float32)
    with jax.default_matmul_precision("highest"):
        out, pullback = jax.vjp(lambda *x: attention.attend_segments(*x, ids[:1]), *small[0])
        wanted = jax.device_get((out, pullback(small[1])))
    table = {}
    for name, attend in PACKED.items():
        forward, both = passes(attend)
        found = jax.tree.map(lambda x: jax.device_get(x[:1]), both(*qkv, ids))
        one, all_ = seconds(forward, *qkv, ids), seconds(both, *qkv, ids)
        table[name] = dict(
            forward_ms=1e3 * one,
            both_ms=1e3 * all_,
            forward_tflops=flops / one / 1e12,
            both_tflops=3.5 * flops / all_ / 1e12,
            error=None if name == "cudnn" and segment < tokens else error(found, wanted),
        )
    return table


def measure_slots(size: str, rows: int, new: int, slots: int) -> dict:
    """Returns seconds, rate and error of attention to a full cache, per library."""
    num_heads, num_kv_heads, head_size = HEADS[size]
    k, v = (normal(i, 2, rows, num_kv_heads, slots, head_size) for i in (0, 1))
    q = normal(2, rows, new, num_heads, head_size)
    row = jnp.arange(rows)
    positions = slots - new + jnp.broadcast_to(jnp.arange(new), (rows, new))
    layer = jnp.int32(1)

    def kernel(q, k, v):
        counts = jnp.full(rows, new)
        return gpu_slot_attention.attend_slots(q, k, v, layer, row, positions[:, 0], counts)

    def plain(q, k, v):
        return attention.attend_cache(q, k, v, layer, row, positions)

    with jax.default_matmul_precision("highest"):
        wanted = jax.device_get(plain(*(x.astype(jnp.float32) for x in (q, k, v))))
    read = 2 * rows * num_kv_heads * slots * head_size * k.dtype.itemsize
    table = {}
    for name, attend in (("kernel", kernel), ("plain", plain)):
        call = jax.jit(attend)
        found = jax.device_get(call(q, k, v))
        one = seconds(call, q, k, v)
        table[name] = dict(ms=1e3 * one, read_gbs=read / one / 1e9, error=error(found, wanted))
    return table


def main(_: list[str]) -> None:
    """Prints one JSON line per measurement, and a table."""
    device = jax.devices()[0]
    if device.platform != "gpu":
        raise app.UsageError(f"the kernels run on GPU; JAX's default device is {device}")
    calls = [("packed", measure_packed, x) for x in ROWS]
    calls += [("slots", measure_slots, x) for x in CACHES]
    calls = [call for call in calls if call[0] in _KERNELS.value]
    for size in HEADS:
        for name, measure, options in calls:
            table = measure(size, *options)
            record = dict(
                benchmark="attention_kernels",
                kernel=name,
                shape=size,
                options=options,
                dtype=_DTYPE.value,
                device=device.device_kind,
                jax=jax.__version__,
                table=table,
            )
            side_by_side.write(record, _OUT.value)
            for library, numbers in table.items():
                shown = [
                    f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}"
                    for k, v in numbers.items()
                ]
                sys.stderr.write(f"{name} {size} {options} {library}: {'  '.join(shown)}\n")


if __name__ == "__main__":
    app.run(main)
