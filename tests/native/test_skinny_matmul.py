import concurrent.futures
import ctypes
import functools
import shutil
import subprocess
import threading

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.models.decode_backend import DecodeBackend
from agentgym_jax.models.kv_cache import KVCache
from agentgym_jax.models.policy import Policy
from agentgym_jax.native import library, products
from tests.builders import decoder_config

pytestmark = pytest.mark.usefixtures("compiled_fast")
HAS_COMPILER = any(map(shutil.which, library.COMPILERS))
SHARED = ("-shared", "-fPIC")
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler")
# The sizes include partial tiles: a tile has 3 columns of the result, a depth of 1024 and 4 rows.


@pytest.fixture(autouse=True, scope="module")
def no_tiles():
    """Simulates a processor without tile units.

    Without tile units, XLA does not compute some products in bfloat16.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "has_tiles", lambda: False)
        yield


TYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
SIZES = [(64, 1024), (897, 100), (130, 1001), (70000, 1), (1, 70000), (2049, 49), (1031, 70)]


def _operands(rows, K, N, seed=0, dtype="float32"):
    random = np.random.default_rng(seed)
    shapes = (rows, K), (N, K)
    return [random.standard_normal(shape, np.float32).astype(dtype) for shape in shapes]


@functools.partial(jax.jit, static_argnames="out")
def _product(x, weights, out=None):
    return products.einsum_transposed("mk,kn->mn", x, weights, preferred_element_type=out)


def _calls_ours(x, weights):
    return "agentgym_skinny" in jax.jit(_product).lower(x, weights).as_text()


@pytest.mark.slow
@needs_compiler
@TYPES
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("rows", [1, 2, 13])
def test_native_products_are_accurate_for_partial_tiles(sizes, rows, dtype):
    K, N = sizes
    x, weights = _operands(rows, K, N, dtype=dtype)
    assert _calls_ours(x, weights)
    exact = x.astype(np.float64) @ weights.T.astype(np.float64)
    y = _product(x, weights, out="float32")
    # A sum of K products of order 1 grows like the root of K, and so does its tolerance.
    np.testing.assert_allclose(y, exact, rtol=0, atol=5e-6 * K**0.5)
    np.testing.assert_array_equal(_product(x, weights), y.astype(dtype))


@needs_compiler
@TYPES
@pytest.mark.parametrize("sizes", [(897, 1001), (2049, 49)])
def test_a_row_has_the_same_bits_for_any_other_rows(sizes, dtype):
    x, weights = _operands(products.MAX_ROWS, *sizes, dtype=dtype)
    full = np.asarray(_product(x, weights))
    for rows in (1, 2, 3, 5, 8, 13):
        few = np.asarray(_product(x[-rows:], weights))
        np.testing.assert_array_equal(few, full[-rows:])
    among_others = _operands(products.MAX_ROWS, *sizes, seed=1, dtype=dtype)[0]
    among_others[17] = x[30]
    np.testing.assert_array_equal(_product(among_others, weights)[17], full[30])


@needs_compiler
def test_native_products_work_inside_loops():
    x, weights = _operands(8, 300, 300)
    weights /= 300

    @jax.jit
    def looped(x, weights):
        def body(carry):
            return carry[0] + 1, _product(carry[1], weights)

        return jax.lax.while_loop(lambda carry: carry[0] < 3, body, (0, x))[1]

    @jax.jit
    def scanned(x, weights):
        return jax.lax.scan(lambda x, _: (_product(x, weights), None), x, length=3)[0]

    one_by_one = functools.reduce(lambda x, _: _product(x, weights), range(3), x)
    np.testing.assert_array_equal(looped(x, weights), one_by_one)
    np.testing.assert_array_equal(scanned(x, weights), one_by_one)


@needs_compiler
def test_many_products_at_once_finish():
    x, weights = _operands(16, 512, 2048)
    many = jax.jit(lambda x, w: [_product(x * i, w) for i in range(32)])
    for i, y in enumerate(many(x, weights)):
        np.testing.assert_array_equal(y, _product(x * i, weights))


@needs_compiler
@pytest.mark.parametrize("spec", ["btd,dnh->btnh", "btnh,nhd->btd", "bd,dv->bv"])
def test_axes_are_grouped_as_in_einsum(spec):
    sizes = dict(b=3, t=1, d=90, n=8, h=100, v=750)
    random = np.random.default_rng(0)
    operands = spec.split("->")[0].split(",")
    x, weights = (
        random.standard_normal([sizes[axis] for axis in axes]).astype(np.float32)
        for axes in operands
    )
    turned = products.transposed(spec, weights)
    np.testing.assert_array_equal(products.untransposed(spec, turned), weights)
    y = products.einsum_transposed(spec, x, turned)
    np.testing.assert_allclose(y, np.einsum(spec, x, weights), rtol=0, atol=2e-4)
    # XLA computes this product
    wide = products.einsum_transposed(spec, np.concatenate([x] * 11), turned)
    np.testing.assert_allclose(wide[:3], y, rtol=0, atol=2e-4)


def test_an_einsum_that_is_not_a_product_of_rows_and_weights_is_refused():
    with pytest.raises(ValueError, match="no product of rows and weights"):
        products.einsum_transposed("mk,kn->nm", *_operands(2, 300, 300))


def test_other_types_sizes_and_row_counts_use_xla():
    x, weights = _operands(4, 512, 512)
    assert _calls_ours(x, weights) == HAS_COMPILER
    for other_x, other_weights in (
        (np.tile(x, (9, 1)), weights),
        (x[:, :8], weights[:, :8]),
        (jnp.asarray(x, jnp.float16), jnp.asarray(weights, jnp.float16)),
        (x, jnp.asarray(weights, jnp.bfloat16)),
    ):
        assert not _calls_ours(other_x, other_weights)


@needs_compiler
def test_with_a_tile_unit_only_few_bfloat16_rows_use_native_functions(monkeypatch):
    def asked(rows, dtype):
        traced_anew = lambda x, weights: products.einsum_transposed("mk,kn->mn", x, weights)
        return jax.jit(traced_anew).lower(*_operands(rows, 512, 512, dtype=dtype)).as_text()

    assert "agentgym_skinny" in asked(4, "bfloat16")
    monkeypatch.setattr(library, "has_tiles", lambda: True)
    assert "agentgym_skinny" in asked(3, "bfloat16") and "agentgym_skinny" in asked(4, "float32")
    by_xla = asked(4, "bfloat16")
    assert "agentgym_skinny" not in by_xla
    # The XLA product must return its float32 sums, not sums rounded to bfloat16.
    assert "(tensor<4x512xbf16>, tensor<512x512xbf16>) -> tensor<4x512xf32>" in by_xla


@pytest.fixture
def unregistered():
    """Simulates a new process by clearing the cached registration; JAX keeps the functions."""
    library.is_registered.cache_clear()
    yield
    library.is_registered.cache_clear()


@pytest.mark.parametrize("compilers", [(), ("false",)], ids=["no_compiler", "compiler_fails"])
def test_without_a_compiler_products_use_xla(
    unregistered, monkeypatch, tmp_path, compilers, caplog
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(library, "COMPILERS", compilers)
    x, weights = _operands(8, 300, 400)
    products.einsum_transposed("mk,kn->mn", x, weights)
    y = products.einsum_transposed("mk,kn->mn", x, weights)
    np.testing.assert_array_equal(y, jnp.einsum("mk,nk->mn", x, weights))
    warnings = [r.getMessage() for r in caplog.records if "decoding on CPU" in r.getMessage()]
    assert len(warnings) == 1 and "\n" not in warnings[0].strip()
    assert not list(tmp_path.rglob("*.so"))


def _warnings(caplog):
    return [r.getMessage() for r in caplog.records if "without native functions" in r.getMessage()]


def test_the_switch_makes_all_products_use_xla(unregistered, monkeypatch, caplog):
    monkeypatch.setenv(library.SWITCH, "0")
    assert not library.is_registered() and not _warnings(caplog)
    assert not products.supports(1, "float32")
    facts = library.machine()
    assert facts["cpu"] and facts["native"] is False and facts["compiler"] is None
    library.is_registered.cache_clear()
    monkeypatch.setenv(library.SWITCH, "off")
    with pytest.raises(ValueError, match="AGENTGYM_JAX_NATIVE='off': set it to 0 or 1"):
        library.is_registered()


@needs_compiler
def test_machine_facts_include_the_compiler():
    facts = library.machine()
    assert facts["native"] is True
    assert facts["compiler"] == library.find_compiler().version != ""


@needs_compiler
@pytest.mark.parametrize("variable", ["CXX", "CC"])
def test_the_compiler_of_the_environment_variable_is_used(tmp_path, monkeypatch, variable):
    script, said = tmp_path / "named", tmp_path / "said"
    script.write_text(f'#!/bin/sh\necho "$@" >> {said}\nexec c++ "$@"\n')
    script.chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv(variable, f"{script} -DONE=1")
    (tmp_path / "one.cc").write_text('extern "C" int one() { return ONE; }')
    compiler = library.find_compiler()
    built = library.compiled(tmp_path, compiler, SHARED, tmp_path / "cache")
    assert ctypes.CDLL(str(built)).one() == 1
    assert "-DONE=1" in said.read_text()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(FileNotFoundError, match="tried no-such-compiler"):
        library.find_compiler()


def test_without_a_home_folder_decoding_uses_xla(unregistered, monkeypatch, caplog):
    def unknown(_):
        raise KeyError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert not library.is_registered()
    assert len(_warnings(caplog)) == 1
    if HAS_COMPILER:
        assert "set HOME or XDG_CACHE_HOME" in _warnings(caplog)[0]


def test_a_hanging_compiler_is_stopped(unregistered, monkeypatch, tmp_path, caplog):
    script = tmp_path / "slow"
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && exit\nexec sleep 60\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "COMPILER_TIMEOUT_S", 0.5)
    assert not library.is_registered()
    assert len(_warnings(caplog)) == 1 and "timed out" in _warnings(caplog)[0]


@needs_compiler
def test_a_truncated_cached_library_is_compiled_again(tmp_path):
    (tmp_path / "one.cc").write_text('extern "C" int one() { return 1; }')
    folder = tmp_path / "cache"
    build = lambda: library.compiled(tmp_path, library.find_compiler(), SHARED, folder)
    whole = build().read_bytes()
    build().write_bytes(whole[: len(whole) // 2])
    assert build().read_bytes() == whole
    assert ctypes.CDLL(str(build())).one() == 1


@needs_compiler
def test_two_threads_can_compile_the_same_library(tmp_path):
    folder = tmp_path / "cache"
    (tmp_path / "one.cc").write_text('extern "C" int one() { return 1; }')
    start = threading.Barrier(2)

    def build(_):
        start.wait()
        return library.compiled(tmp_path, library.find_compiler(), SHARED, folder)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build, range(2))
    assert first == second
    assert list(folder.iterdir()) == [first]
    assert ctypes.CDLL(str(first)).one() == 1


@needs_compiler
def test_changed_sources_or_flags_are_recompiled_and_errors_reported(tmp_path):
    source, header = tmp_path / "one.cc", tmp_path / "one.h"
    source.write_text("int one() { return 1; }")
    build = functools.partial(
        library.compiled, tmp_path, library.find_compiler(), folder=tmp_path / "cache"
    )
    first = build(("-shared", "-fPIC"))
    assert build(("-shared", "-fPIC")) == first != build(("-shared", "-fPIC", "-O2"))
    header.write_text("// new")
    assert build(("-shared", "-fPIC")) != first
    header.unlink()
    source.write_text("int one() { return 2; }")
    assert build(("-shared", "-fPIC")) != first
    source.write_text("int one() {")
    with pytest.raises(subprocess.CalledProcessError) as error:
        build(("-shared", "-fPIC"))
    assert "one.cc" in error.value.stderr


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("bfloat16", 0.02)])
def test_a_decode_step_with_split_weights_equals_one_with_stacked_ones(is_tied, dtype, tolerance):
    config = decoder_config(
        vocab_size=700,
        hidden_size=256,
        intermediate_size=512,
        num_layers=1,
        head_size=64,
        tie_embeddings=is_tied,
    )
    policy = Policy(config, dtype=dtype)
    params = jax.tree.map(lambda x: x.astype(dtype), jax.jit(policy.init)(jax.random.key(0)))
    tokens = jax.random.randint(jax.random.key(1), (6, 1), 0, 700)

    @jax.jit
    def step(params, tokens):
        rows = tokens.shape[0]
        cache = KVCache.create(config, rows, 8, dtype)
        hidden, _ = policy.hidden_cached(params, tokens, jnp.zeros((rows, 1), jnp.int32), cache)
        return policy.logits(params, hidden[:, 0])

    native = DecodeBackend(is_split=True, is_native=True)
    split = native.prepare_params(params)
    for function in ("agentgym_skinny_matmul", "agentgym_decode_attention"):
        call = f"@{function}{library.SUFFIXES[jnp.dtype(dtype)]}("
        assert call in step.lower(split, tokens).as_text()
        assert call not in step.lower(params, tokens).as_text()
    whole = step(split, tokens)
    np.testing.assert_allclose(whole, step(params, tokens), rtol=0, atol=tolerance)
    np.testing.assert_array_equal(step(split, tokens[2:5]), whole[2:5])
    for backend in (native, DecodeBackend(is_split=True)):
        split = backend.prepare_params(params)
        chex.assert_trees_all_equal(backend.restore_params(split), params)
