import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.algorithms import masked

STATISTICS = {
    "sum": masked.masked_sum,
    "mean": masked.masked_mean,
    "std": masked.masked_std,
    "max": masked.masked_max,
}


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_agree_with_numpy_on_the_mask(name):
    rng = np.random.default_rng(0)
    value, mask = rng.normal(size=(4, 6)).astype(np.float32), rng.random((4, 6)) < 0.5
    options = {"ddof": 1} if name == "std" else {}
    expected = getattr(np, name)(value[mask], **options)
    found = STATISTICS[name](jnp.asarray(value), jnp.asarray(mask))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", STATISTICS)
def test_an_empty_mask_gives_zero(name):
    value = jnp.full((2, 3), jnp.nan)
    assert STATISTICS[name](value, jnp.zeros((2, 3), bool)) == 0.0


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_tokens_off_the_mask_have_no_gradient(name):
    value, mask = jnp.array([[1.0, jnp.nan, jnp.inf]]), jnp.array([[True, False, False]])
    gradient = jax.grad(lambda v: STATISTICS[name](v, mask))(value)
    np.testing.assert_array_equal(gradient, [[1.0, 0.0, 0.0]])


def test_rows_are_reduced_independently():
    value = jnp.array([[1.0, 3.0], [5.0, 100.0]])
    mask = jnp.array([[True, True], [True, False]])
    np.testing.assert_array_equal(masked.masked_mean(value, mask, axis=1), [2.0, 5.0])
    np.testing.assert_allclose(masked.masked_std(value, mask, axis=1), [np.sqrt(2.0), 0.0])
