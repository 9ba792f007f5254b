import concurrent.futures
import ctypes
import functools
import shutil
import subprocess
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.config import DecoderConfig
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.policy import Policy
from agentgym_jax.native import library, products

pytestmark = pytest.mark.usefixtures("compiled_fast")
HAS_COMPILER = any(map(shutil.which, library.COMPILERS))
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler")
# A tile is 24 or 48 columns, 64 or 2048 deep; 4 rows, or 3 of a transposed matrix, at a time.
SIZES = [(64, 1024), (897, 100), (130, 1001), (70000, 1), (1, 70000), (2049, 49)]
SPECS = {"plain": "mk,kn->mn", "transposed": "mk,nk->mn"}


def _operands(kind, rows, K, N, seed=0):
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, K), np.float32)
    return x, random.standard_normal((K, N) if kind == "plain" else (N, K), np.float32)


@functools.partial(jax.jit, static_argnums=0)
def _product(kind, x, weights):
    return products.einsum(SPECS[kind], x, weights)


def _calls_ours(kind, x, weights):
    return (
        "agentgym_skinny" in jax.jit(_product, static_argnums=0).lower(kind, x, weights).as_text()
    )


@needs_compiler
@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("rows", [2, 13])
def test_it_is_the_product_at_awkward_sizes(kind, sizes, rows):
    K, N = sizes
    x, weights = _operands(kind, rows, K, N)
    assert _calls_ours(kind, x, weights)
    exact = x.astype(np.float64) @ (weights if kind == "plain" else weights.T)
    # Sums of K products of order 1 grow like the root of K, their rounding a little faster.
    np.testing.assert_allclose(_product(kind, x, weights), exact, rtol=0, atol=5e-6 * K**0.5)


@needs_compiler
@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("sizes", [(897, 1001), (2049, 49)])
def test_a_row_has_the_same_bits_whatever_is_beside_it(kind, sizes):
    x, weights = _operands(kind, products.MAX_ROWS, *sizes)
    full = np.asarray(_product(kind, x, weights))
    for rows in (2, 3, 5, 8, 13):
        few = np.asarray(_product(kind, x[-rows:], weights))
        np.testing.assert_array_equal(few, full[-rows:])
    among_others = _operands(kind, products.MAX_ROWS, *sizes, seed=1)[0]
    among_others[17] = x[30]
    np.testing.assert_array_equal(_product(kind, among_others, weights)[17], full[30])


@needs_compiler
@pytest.mark.parametrize("kind", SPECS)
def test_it_is_the_same_inside_a_loop(kind):
    x, weights = _operands(kind, 8, 300, 300)
    weights /= 300

    @jax.jit
    def looped(x, weights):
        def body(carry):
            return carry[0] + 1, _product(kind, carry[1], weights)

        return jax.lax.while_loop(lambda carry: carry[0] < 3, body, (0, x))[1]

    @jax.jit
    def scanned(x, weights):
        return jax.lax.scan(lambda x, _: (_product(kind, x, weights), None), x, length=3)[0]

    one_by_one = functools.reduce(lambda x, _: _product(kind, x, weights), range(3), x)
    np.testing.assert_array_equal(looped(x, weights), one_by_one)
    np.testing.assert_array_equal(scanned(x, weights), one_by_one)


@needs_compiler
def test_many_products_at_once_finish():
    x, weights = _operands("plain", 16, 512, 2048)
    many = jax.jit(lambda x, w: [_product("plain", x * i, w) for i in range(32)])
    for i, y in enumerate(many(x, weights)):
        np.testing.assert_array_equal(y, _product("plain", x * i, weights))


@needs_compiler
def test_axes_are_grouped_as_in_einsum():
    random = np.random.default_rng(0)
    x, weights = random.standard_normal((3, 1, 8, 16)), random.standard_normal((8, 16, 600))
    x, weights = x.astype(np.float32), weights.astype(np.float32)
    y = products.einsum("btnh,nhd->btd", x, weights)
    np.testing.assert_allclose(y, np.einsum("btnh,nhd->btd", x, weights), rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="no product of rows and weights"):
        products.einsum("mk,kn->nm", *_operands("plain", 2, 300, 300))


def test_other_types_sizes_and_row_counts_are_left_to_xla():
    x, weights = _operands("plain", 4, 512, 512)
    assert _calls_ours("plain", x, weights) == HAS_COMPILER
    for other_x, other_weights in (
        (x[:1], weights),
        (np.tile(x, (17, 1)), weights),
        (x[:, :8], weights[:8]),
        (jnp.asarray(x, jnp.bfloat16), jnp.asarray(weights, jnp.bfloat16)),
    ):
        assert not _calls_ours("plain", other_x, other_weights)


@pytest.fixture
def unregistered():
    """As in a new process; JAX knows the functions all the same."""
    library.is_registered.cache_clear()
    yield
    library.is_registered.cache_clear()


@pytest.mark.parametrize("compilers", [(), ("false",)], ids=["no_compiler", "compiler_fails"])
def test_without_a_compiler_the_product_is_that_of_xla(
    unregistered, monkeypatch, tmp_path, compilers, caplog
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "COMPILERS", compilers)
    x, weights = _operands("plain", 8, 300, 400)
    products.einsum("mk,kn->mn", x, weights)
    y = products.einsum("mk,kn->mn", x, weights)
    np.testing.assert_array_equal(y, jnp.einsum("mk,kn->mn", x, weights))
    warnings = [r.getMessage() for r in caplog.records if "decoding on CPU" in r.getMessage()]
    assert len(warnings) == 1 and "\n" not in warnings[0].strip()
    assert not list(tmp_path.rglob("*.so"))


@needs_compiler
def test_two_may_compile_the_same_at_once(tmp_path):
    source, folder = tmp_path / "one.cc", tmp_path / "cache"
    source.write_text('extern "C" int one() { return 1; }')
    start = threading.Barrier(2)

    def build(_):
        start.wait()
        return library.compiled(source, library.COMPILERS, ("-shared", "-fPIC"), folder)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build, range(2))
    assert first == second
    assert list(folder.iterdir()) == [first]
    assert ctypes.CDLL(str(first)).one() == 1


@needs_compiler
def test_a_changed_source_or_flag_is_compiled_anew_and_an_error_is_told(tmp_path):
    source = tmp_path / "one.cc"
    source.write_text("int one() { return 1; }")
    build = functools.partial(library.compiled, source, library.COMPILERS, folder=tmp_path)
    first = build(("-shared", "-fPIC"))
    assert build(("-shared", "-fPIC")) == first != build(("-shared", "-fPIC", "-O2"))
    source.write_text("int one() { return 2; }")
    assert build(("-shared", "-fPIC")) != first
    source.write_text("int one() {")
    with pytest.raises(subprocess.CalledProcessError) as error:
        build(("-shared", "-fPIC"))
    assert "one.cc" in error.value.stderr


@needs_compiler
@pytest.mark.parametrize("is_tied", [True, False])
def test_a_decode_step_of_split_weights_is_that_of_stacked_ones(is_tied):
    config = DecoderConfig(700, 256, 512, 1, 4, 2, 64, tie_embeddings=is_tied)
    policy = Policy(config)
    params = jax.jit(policy.init)(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (6, 1), 0, 700)

    @jax.jit
    def step(params, tokens):
        rows = tokens.shape[0]
        cache = KVCache.create(config, rows, 8, "float32")
        hidden, _ = policy.hidden_cached(params, tokens, jnp.zeros((rows, 1), jnp.int32), cache)
        return policy.logits(params, hidden[:, 0])

    split = policy.split_layers(params)
    assert "agentgym_skinny" in step.lower(split, tokens).as_text()
    assert "agentgym_skinny" not in step.lower(params, tokens).as_text()
    whole = step(split, tokens)
    np.testing.assert_allclose(whole, step(params, tokens), rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(step(split, tokens[2:5]), whole[2:5])
