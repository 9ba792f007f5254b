"""Measurement of compiled programs, on programs of this machine and on text of other compilers."""

import jax
import jax.numpy as jnp
import pytest

from agentgym_jax.planning import hlo
from agentgym_jax.planning.flops import count_flops

SLICED = """HloModule sliced

%read_slice (weights: f32[8,256], i: s32[]) -> f32[256] {
  %weights = f32[8,256]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice = f32[1,256]{1,0} dynamic-slice(%weights, %i, %zero), dynamic_slice_sizes={1,256}
  ROOT %flat = f32[256]{0} bitcast(%slice)
}

%body (carry: (s32[], f32[8,256], f32[256])) -> (s32[], f32[8,256], f32[256]) {
  %carry = (s32[], f32[8,256]{1,0}, f32[256]{0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %weights = f32[8,256]{1,0} get-tuple-element(%carry), index=1
  %row = f32[256]{0} fusion(%weights, %i), kind=kLoop, calls=%read_slice
  %whole = f32[8,256]{0,1} copy(%weights)
  %all = f32[512]{0} all-gather(%row), dimensions={0}
  ROOT %next = (s32[], f32[8,256]{1,0}, f32[256]{0}) tuple(%i, %weights, %row)
}

%condition (carry: (s32[], f32[8,256], f32[256])) -> pred[] {
  %carry = (s32[], f32[8,256]{1,0}, f32[256]{0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %limit = s32[] constant(8)
  ROOT %less = pred[] compare(%i, %limit), direction=LT
}

ENTRY %main (start: (s32[], f32[8,256], f32[256])) -> (s32[], f32[8,256], f32[256]) {
  %start = (s32[], f32[8,256]{1,0}, f32[256]{0}) parameter(0)
  ROOT %loop = (s32[], f32[8,256]{1,0}, f32[256]{0}) while(%start), condition=%condition, body=%body, metadata={op_name="jit(f)/layers/while"}
}
"""


def test_a_loop_multiplies_collectives_and_traffic():
    cost = hlo.measure(SLICED, {})
    assert cost.collectives == {"all-gather": (8, 8 * 512 * 4)}
    row, weights, gathered = 256 * 4, 8 * 256 * 4, 512 * 4
    # The fusion reads one row of the weights and writes one row; the copy reads and writes all.
    assert cost.traffic == 8 * (row + row + 4 + 2 * weights + row + gathered)
    assert cost.largest_copy_in_loop == weights


def test_a_named_scope_sets_the_number_of_iterations():
    once = hlo.measure(SLICED, {"layers": 1}).traffic
    assert hlo.measure(SLICED, {"layers": 3}).traffic == 3 * once
    assert hlo.measure(SLICED, {"other": 3}).traffic == 8 * once


def test_arrays_in_on_chip_memory_are_no_traffic():
    text = SLICED.replace("f32[8,256]{0,1} copy", "f32[8,256]{0,1:S(1)} copy")
    assert hlo.measure(SLICED, {}).traffic - hlo.measure(text, {}).traffic == 8 * 8 * 256 * 4


def test_a_fusion_that_updates_a_slice_in_place_writes_the_slice_only():
    text = """HloModule update

%put (cache: f32[64,256], new: f32[1,256], i: s32[]) -> f32[64,256] {
  %cache = f32[64,256]{1,0} parameter(0)
  %new = f32[1,256]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %put_row = f32[64,256]{1,0} dynamic-update-slice(%cache, %new, %i, %zero)
}

ENTRY %main (cache: f32[64,256], new: f32[1,256], i: s32[]) -> f32[64,256] {
  %cache = f32[64,256]{1,0} parameter(0)
  %new = f32[1,256]{1,0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %out = f32[64,256]{1,0} fusion(%cache, %new, %i), kind=kLoop, calls=%put
}
"""
    assert hlo.measure(text, {}).traffic <= 4 * 256 * 4


def test_a_fusion_that_changes_tiles_in_place_reads_the_slice_only():
    text = """HloModule tiles

%change_tiles (x: s8[8,256]) -> s8[8,256] {
  %x = s8[8,256]{1,0:T(32,128)(4,1)} parameter(0)
  ROOT %copy = s8[8,256]{1,0:T(8,128)(4,1)} copy(%x)
}

%read_slice (weights: s8[8,256], i: s32[]) -> s8[1,256] {
  %weights = s8[8,256]{1,0:T(32,128)(4,1)} parameter(0)
  %tiles = s8[8,256]{1,0:T(8,128)(4,1)} fusion(%weights), kind=kLoop, output_to_operand_aliasing={{}: (0, {})}, calls=%change_tiles
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %slice = s8[1,256]{1,0} dynamic-slice(%tiles, %i, %zero), dynamic_slice_sizes={1,256}
}

ENTRY %main (weights: s8[8,256], i: s32[]) -> s8[1,256] {
  %weights = s8[8,256]{1,0:T(32,128)(4,1)} parameter(0)
  %i = s32[] parameter(1)
  ROOT %row = s8[1,256]{1,0} fusion(%weights, %i), kind=kLoop, calls=%read_slice
}
"""
    assert hlo.measure(text, {}).traffic == 256 + 256 + 4
    copied = text.replace("output_to_operand_aliasing={{}: (0, {})}, ", "")
    assert hlo.measure(copied, {}).traffic == 8 * 256 + 256 + 4


def in_loop(fusion, line):
    """Returns a GPU program whose loop runs `line` five times."""
    return f"""HloModule gpu

%fused {fusion}

%body (carry: (s32[], f32[8,256])) -> (s32[], f32[8,256]) {{
  %carry = (s32[], f32[8,256]{{1,0}}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %x = f32[8,256]{{1,0}} get-tuple-element(%carry), index=1
  {line}
  ROOT %next = (s32[], f32[8,256]{{1,0}}) tuple(%i, %x)
}}

%condition (carry: (s32[], f32[8,256])) -> pred[] {{
  %carry = (s32[], f32[8,256]{{1,0}}) parameter(0)
  ROOT %less = pred[] constant(true)
}}

ENTRY %main (start: (s32[], f32[8,256])) -> (s32[], f32[8,256]) {{
  %start = (s32[], f32[8,256]{{1,0}}) parameter(0)
  ROOT %loop = (s32[], f32[8,256]{{1,0}}) while(%start), condition=%condition, body=%body, backend_config={{"known_trip_count":{{"n":"5"}}}}
}}
"""


SLICE_OF_A_LAYER = """(x: f32[8,256], i: s32[]) -> f32[1,256] {
  %x = f32[8,256]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice = f32[1,256]{1,0} dynamic-slice(%x, %i, %zero), dynamic_slice_sizes={1,256}
  ROOT %end = f32[1,256]{1,0} %OPCODE(%slice)
}"""


@pytest.mark.parametrize(("opcode", "copied"), [("copy", 256 * 4), ("negate", 0)])
def test_a_fusion_that_copies_a_layer_on_gpu_is_a_copy(opcode, copied):
    line = "%row = f32[1,256]{1,0} fusion(%x, %i), kind=kCustom, calls=%fused"
    text = in_loop(SLICE_OF_A_LAYER.replace("%OPCODE", opcode), line)
    assert hlo.measure(text, {}).largest_copy_in_loop == copied
    assert hlo.measure(text, {}).launches == 5


ASYNC = """%pair = ((f32[8,256]{1,0}, f32[8,256]{1,0}), (f32[2,256]{1,0}, f32[2,256]{1,0})) \
reduce-scatter-start(%x, %x), dimensions={0}
  %done = (f32[2,256]{1,0}, f32[2,256]{1,0}) reduce-scatter-done(%pair)"""


def test_an_asynchronous_collective_counts_each_array_once():
    cost = hlo.measure(in_loop(SLICE_OF_A_LAYER.replace("%OPCODE", "copy"), ASYNC), {})
    assert cost.collectives == {"reduce-scatter": (5, 5 * 2 * 8 * 256 * 4)}
    assert cost.traffic == 5 * (2 * 8 + 2 * 2) * 256 * 4
    assert cost.launches == 5


def test_a_triton_kernel_states_its_traffic():
    line = (
        '%y = f32[8]{0} custom-call(%x), custom_call_target="__gpu$xla.gpu.triton", backend_config='
        r'{grid_x = 4 : i32, ir = "ML\EF%x(\22", serialized_metadata = "{\22bytes_accessed\22: \2277\22}"}'
    )
    text = in_loop(SLICE_OF_A_LAYER.replace("%OPCODE", "copy"), line)
    assert hlo.measure(text, {}).traffic == 5 * 77


def test_a_compiled_program_of_this_machine_can_be_measured():
    def f(weights, x):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    weights, x = jnp.ones((4, 64, 64)), jnp.ones((8, 64))
    cost = hlo.measure(jax.jit(f).lower(weights, x).compile().as_text(), {})
    assert cost.traffic >= weights.nbytes
    assert cost.collectives == {}


@pytest.mark.parametrize(("scope", "products"), [("steps", 5), ("other", 1)])
def test_flops_of_a_loop_are_counted_per_iteration(scope, products):
    def f(n, x):
        with jax.named_scope("steps"):
            return jax.lax.fori_loop(0, n, lambda i, x: x @ x, x)

    traced = jax.jit(f).trace(3, jnp.ones((16, 16)))
    assert count_flops(traced.jaxpr, {scope: 5}) == products * 2 * 16**3


def test_flops_of_a_gradient_include_the_recomputed_layers():
    def loss(w, x):
        layer = jax.checkpoint(lambda x, w: jnp.sin(x @ w))
        return jnp.sum(jax.lax.scan(lambda x, w: (layer(x, w), None), x, w)[0])

    w, x = jnp.ones((4, 32, 32)), jnp.ones((8, 32))
    forward = count_flops(jax.jit(loss).trace(w, x).jaxpr, {})
    whole = count_flops(jax.jit(jax.grad(loss)).trace(w, x).jaxpr, {})
    assert forward == 4 * 2 * 8 * 32 * 32
    assert whole == 4 * forward  # forward, recomputation, two gradients


BRANCHES = """HloModule branches

%small (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %a = f32[8]{0} negate(%x)
  %b = f32[8]{0} negate(%a)
  ROOT %c = f32[8]{0} negate(%b)
}

%large (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %wide = f32[1024,8]{1,0} broadcast(%x), dimensions={1}
  ROOT %row = f32[8]{0} slice(%wide), slice={[0:1], [0:8]}
}

ENTRY %main (index: s32[], x: f32[8]) -> f32[8] {
  %index = s32[] parameter(0)
  %x = f32[8]{0} parameter(1)
  ROOT %chosen = f32[8]{0} conditional(%index, %x, %x), branch_computations={FIRST, SECOND}
}
"""


@pytest.mark.parametrize("order", [("%small", "%large"), ("%large", "%small")])
def test_a_conditional_counts_as_its_most_expensive_branch(order):
    first, second = order
    cost = hlo.measure(BRANCHES.replace("FIRST", first).replace("SECOND", second), {})
    row = 8 * 4
    assert cost.traffic == (row + 1024 * row) + 2 * row  # and not the three negations of a row
    assert cost.launches == 2


def test_the_bytes_of_collectives_count_in_the_choice_of_a_branch():
    text = BRANCHES.replace("FIRST", "%small").replace("SECOND", "%large")
    text = text.replace("f32[8]{0} negate(%b)", "f32[8]{0} all-reduce(%b)")
    text = text.replace("%b = f32[8]{0} negate(%a)", "%b = f32[9999]{0:S(1)} negate(%a)")
    assert list(hlo.measure(text, {}).collectives) == ["all-reduce"]
