import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.einsum import KERNEL_SPECS, einsum
from tests.models.decoder_parts import equations

SIZES = dict(b=2, t=5, d=24, n=3, h=8, f=40, v=50)
SPECS = [*sorted(set(KERNEL_SPECS.values())), "btd,vd->btv"]


def _operands(spec, dtype):
    random = np.random.default_rng(0)
    operands, out = spec.split("->")
    shapes = ([SIZES[axis] for axis in axes] for axes in (*operands.split(","), out))
    # All operands are small integers, so all sums are exact.
    x, kernel, d_y = (random.integers(-8, 9, shape).astype(np.float32) for shape in shapes)
    return (jnp.asarray(x, dtype), jnp.asarray(kernel, dtype)), d_y


def _gradients(product, spec, operands, d_y, out):
    y, pull = jax.vjp(
        lambda x, kernel: product(spec, x, kernel, preferred_element_type=out), *operands
    )
    return y, *pull(jnp.asarray(d_y, y.dtype))


@pytest.mark.slow
@pytest.mark.parametrize("out", [None, jnp.float32], ids=["own", "float32"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", SPECS)
def test_values_and_gradients_equal_those_of_einsum(spec, dtype, out):
    operands, d_y = _operands(spec, dtype)
    wide = [x.astype(jnp.float32) for x in operands]
    found = _gradients(einsum, spec, operands, d_y, out)
    expected = _gradients(jnp.einsum, spec, wide, d_y, None)
    types = [out or dtype, dtype, dtype]
    for one, other, kind in zip(found, expected, types, strict=True):
        assert one.dtype == kind
        np.testing.assert_array_equal(one, other.astype(kind))


def test_gradients_of_bfloat16_products_use_no_float32_operands():
    spec = "btd,vd->btv"
    operands, d_y = _operands(spec, "bfloat16")

    def types(product):
        traced = jax.make_jaxpr(
            lambda *operands: _gradients(product, spec, operands, d_y, jnp.float32)
        )(*operands)
        dots = [eqn for eqn in equations(traced.jaxpr) if eqn.primitive.name == "dot_general"]
        assert len(dots) == 3
        return {variable.aval.dtype for eqn in dots for variable in eqn.invars}

    assert types(einsum) == {jnp.dtype("bfloat16")}
    # When this assertion fails, jnp.einsum can replace our `einsum`.
    assert jnp.dtype("float32") in types(jnp.einsum)
