r"""A prototype: the forward pass of packed attention as a kernel of Mosaic GPU.

  PYTHONPATH=.:envs python experiments/2026-11-28_mosaic_attention/packed_forward.py            # on CPU
  PYTHONPATH=.:envs python experiments/2026-11-28_mosaic_attention/packed_forward.py --compile  # for an H100

Without a flag, the kernel runs in Mosaic's GPU interpreter and is compared with the plain attention.
`--compile` needs the extra `cuda` and no GPU. One warpgroup computes 64 queries; it waits for every
block of keys, so this kernel shows what the move needs, and is not fast.
"""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from agentgym_jax.mesh.sharding import DECODE_RULES, Layout, make_mesh
from agentgym_jax.models.attention import attend_segments
from agentgym_jax.planning.topology import compile_absent, parse_topology

_COMPILE = flags.DEFINE_bool("compile", False, "Compiles for an H100 instead of running.")

SIDE = 64  # queries and keys of a block; a product of a warpgroup has 64 rows
_MASKED = -1e30


def attend_packed(q_BTNH, k_BTKH, v_BTKH, ids_BT, *, interpret=None):
    """Computes `attention.attend_segments` of rows in bfloat16, whose length is a multiple of 64."""
    B, T, N, H = q_BTNH.shape
    group = N // k_BTKH.shape[2]
    is_first_BT = jnp.diff(ids_BT, axis=1, prepend=ids_BT[:, :1] - 1) != 0
    start_BT = jax.lax.cummax(jnp.where(is_first_BT, jnp.arange(T)[None], 0), axis=1)
    first_BX = (start_BT[:, ::SIDE] // SIDE).astype(jnp.int32)
    tiles = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    shapes = (SIDE, H), (H, SIDE), (SIDE, H), (SIDE, SIDE)
    blocks = [plgpu.SMEM(shape, q_BTNH.dtype, transforms=tiles) for shape in shapes]
    # The interpreter of JAX 0.10.2 knows neither `transpose_ref` nor operands in registers, so keys
    # arrive transposed, and the weights of a block pass through shared memory.
    k_BKHT = k_BTKH.transpose(0, 2, 3, 1)
    return plgpu.kernel(
        functools.partial(_forward, group=group),
        out_type=jax.ShapeDtypeStruct(q_BTNH.shape, q_BTNH.dtype),
        grid=(T // SIDE, N, B),
        grid_names=("block", "head", "row"),
        scratch_types=[
            *blocks,
            *[plgpu.SMEM((SIDE,), jnp.int32) for _ in "qk"],
            plgpu.Barrier(num_arrivals=2),
            plgpu.Barrier(num_arrivals=3),
        ],
        compiler_params=plgpu.CompilerParams(
            approx_math=True, lowering_semantics=plgpu.LoweringSemantics.Warpgroup
        ),
        interpret=interpret,
    )(q_BTNH, k_BKHT, v_BTKH, ids_BT.astype(jnp.int32), first_BX)


def _forward(
    q_ref,
    k_ref,
    v_ref,
    ids_ref,
    first_ref,
    out_ref,
    q_block,
    k_block,
    v_block,
    weights_block,
    ids_Q,
    ids_S,
    query_barrier,
    key_barrier,
    *,
    group,
):
    """Computes a block of queries with a running softmax (arXiv:1805.02867)."""
    i, head, row = (jax.lax.axis_index(name) for name in ("block", "head", "row"))
    H = q_block.shape[1]
    own = pl.ds(i * SIDE, SIDE)
    plgpu.copy_gmem_to_smem(q_ref.at[row, own, head], q_block, query_barrier)
    plgpu.copy_gmem_to_smem(ids_ref.at[row, own], ids_Q, query_barrier)
    plgpu.barrier_wait(query_barrier)
    query_QS = jax.lax.broadcasted_iota(jnp.int32, (SIDE, SIDE), 0) + i * SIDE

    def product(a, b, shape):
        def multiply(sum_ref):
            plgpu.wgmma(sum_ref, a, b)
            return sum_ref[...]

        return pl.run_scoped(multiply, plgpu.ACC(shape, jnp.float32))

    def add_block(j, carry):
        max_Q, sum_Q, out_QH = carry
        keys = pl.ds(j * SIDE, SIDE)
        key_head = jax.lax.div(head, jnp.int32(group))
        plgpu.copy_gmem_to_smem(k_ref.at[row, key_head, :, keys], k_block, key_barrier)
        plgpu.copy_gmem_to_smem(v_ref.at[row, keys, key_head], v_block, key_barrier)
        plgpu.copy_gmem_to_smem(ids_ref.at[row, keys], ids_S, key_barrier)
        plgpu.barrier_wait(key_barrier)
        scores_QS = product(q_block, k_block, (SIDE, SIDE))
        key_QS = jax.lax.broadcasted_iota(jnp.int32, (SIDE, SIDE), 1) + j * SIDE
        query_ids_QS = jax.lax.broadcast_in_dim(ids_Q[...], (SIDE, SIDE), [0])
        key_ids_QS = jax.lax.broadcast_in_dim(ids_S[...], (SIDE, SIDE), [1])
        mask_QS = (query_ids_QS == key_ids_QS) & (query_QS >= key_QS)
        scores_QS = jnp.where(mask_QS, scores_QS * H**-0.5, _MASKED)
        new_max_Q = jnp.maximum(max_Q, jnp.max(scores_QS, axis=1))
        weights_QS = jnp.exp(scores_QS - jax.lax.broadcast_in_dim(new_max_Q, (SIDE, SIDE), [0]))
        scale_Q = jnp.exp(max_Q - new_max_Q)
        weights_block[...] = weights_QS.astype(weights_block.dtype)
        plgpu.commit_smem()
        mixed_QH = product(weights_block, v_block, (SIDE, H))
        scale_QH = jax.lax.broadcast_in_dim(scale_Q, (SIDE, H), [0])
        return (
            new_max_Q,
            sum_Q * scale_Q + jnp.sum(weights_QS, axis=1),
            out_QH * scale_QH + mixed_QH,
        )

    zeros_Q = jnp.zeros((SIDE,), jnp.float32)
    carry = (zeros_Q + _MASKED, zeros_Q, jnp.zeros((SIDE, H), jnp.float32))
    _, sum_Q, out_QH = jax.lax.fori_loop(first_ref[row, i], i + 1, add_block, carry)
    out_QH = out_QH / jax.lax.broadcast_in_dim(sum_Q, (SIDE, H), [0])
    q_block[...] = out_QH.astype(q_block.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(q_block, out_ref.at[row, own, head])
    plgpu.wait_smem_to_gmem(0)


def compile_for_h100() -> str:
    """Compiles the kernel for an absent H100; returns the custom calls of the program."""
    layout = Layout(
        make_mesh(data=1, fsdp=-1, tensor=1, devices=parse_topology("h100:1").devices), DECODE_RULES
    )

    def abstract(shape, dtype):
        axes = ("batch", None, "act_kv_heads", None)[: len(shape)]
        return jax.ShapeDtypeStruct(shape, dtype, sharding=layout.sharding(axes, shape))

    arrays = [abstract((2, 2048, n, 64), jnp.bfloat16) for n in (14, 2, 2)]
    traced = jax.jit(attend_packed).trace(*arrays, abstract((2, 2048), jnp.int32))
    text = compile_absent(traced).as_text()
    return "\n".join(line.strip()[:150] for line in text.splitlines() if "mosaic_gpu" in line)


def compare() -> float:
    """Returns the largest difference from the plain attention in the interpreter."""
    from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(1, 192, n, 64)), jnp.bfloat16) for n in (2, 1, 1))
    ids = jnp.asarray([[1] * 70 + [2] * 90 + [0] * 32])
    found = attend_packed(q, k, v, ids, interpret=InterpretGPUParams())
    wanted = attend_segments(*(x.astype(jnp.float32) for x in (q, k, v)), ids)
    return float(jnp.abs(found.astype(jnp.float32) - wanted).max())


def main(_: list[str]) -> None:
    """Compiles or compares."""
    if _COMPILE.value:
        sys.stdout.write(f"{compile_for_h100()}\n")
    else:
        sys.stdout.write(f"largest difference {compare():.4f}\n")


if __name__ == "__main__":
    app.run(main)
