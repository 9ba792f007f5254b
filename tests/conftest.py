"""Sets up eight fake CPU devices and strict JAX settings before anything imports JAX."""

import atexit
import gc
import math
import os
import pathlib
import shutil
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
STARTED = time.monotonic()

if sys.dont_write_bytecode:
    # The tests start some hundred processes, and compiling the imported modules to bytecode takes
    # longer than most tests. The processes therefore share bytecode, which is stored in pytest's
    # folder because the source folders must not change.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(ROOT / ".pytest_cache" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

gc.disable()  # enabled again after the collection of the tests

# AGENTGYM_TEST_PLATFORM=cuda runs tests on a GPU, such as those of tests/models/kernels.
os.environ["JAX_PLATFORMS"] = os.environ.get("AGENTGYM_TEST_PLATFORM", "cpu")
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_force_host_platform_device_count=8"]
).strip()
os.environ["HF_HUB_OFFLINE"] = "1"

if "PYTEST_XDIST_WORKER" not in os.environ:
    # All processes of the tests share compiled programs, because many of them compile the same ones.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _PROGRAMS = tempfile.mkdtemp(prefix="xla-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    atexit.register(shutil.rmtree, _PROGRAMS, ignore_errors=True)

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402
from jax._src import compiler  # noqa: E402

from tests.fast_programs import OLD_EMITTER  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")

# On a loaded machine single examples are slow.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")


@pytest.fixture(scope="module")
def compiled_fast():
    """Disables most XLA optimisations for a test module, whose programs mostly run only once."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def pytest_addoption(parser):
    """Adds the limit that keeps `CI=true bash .ci/run` within the time of a CI job."""
    parser.addoption(
        "--slow-minutes",
        type=float,
        default=math.inf,
        help="skip slow tests that would begin after this many minutes",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure():
    """Drops the recursion errors of finalizers before pytest reports them.

    A garbage collection can begin while a text is parsed that is nested too deeply. The finalizers,
    and pytest's own report of their errors, then have no stack left.
    """
    report = sys.unraisablehook

    def report_others(unraisable):
        if unraisable.exc_type is not RecursionError:
            report(unraisable)

    sys.unraisablehook = report_others


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Leaves out the garbage collector, which finds little in imports, and all objects from them."""
    yield
    gc.freeze()
    gc.enable()


# Whether JAX holds programs of modules with `compiled_fastest` that are done.
LEFT_PROGRAMS = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skips slow tests after `--slow-minutes`, and removes programs of `compiled_fastest`.

    JAX keeps a program by its function and shapes. A test without this fixture must not use the
    programs of modules with it, because their rounding differs.
    """
    minutes = item.config.getoption("--slow-minutes")
    if item.get_closest_marker("slow") and time.monotonic() - STARTED > 60 * minutes:
        pytest.skip(f"the {minutes:g} minutes in which slow tests may begin are over")
    stash = item.config.stash
    if stash.get(LEFT_PROGRAMS, False) and "compiled_fastest" not in item.fixturenames:
        jax.clear_caches()
        stash[LEFT_PROGRAMS] = False


@pytest.fixture(scope="module")
def compiled_fastest(compiled_fast, request):
    """Extends `compiled_fast` by XLA's old loop emitter, which compiles in a third of the time.

    This fixture is not for tests that require two programs to agree bit for bit. Modules with it
    share their programs. It wraps an internal function of JAX, because there is no public setting
    for a single module. Without this function, and with JAX 0.11, the fixture equals
    `compiled_fast`.
    """
    original = getattr(compiler, "get_compile_options", None)

    def options(*args, env_options_overrides=None, **kwargs):
        overrides = OLD_EMITTER | dict(env_options_overrides or {})
        return original(*args, env_options_overrides=overrides, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "get_compile_options", options, raising=False)
        request.config.stash[LEFT_PROGRAMS] = False
        yield
        request.config.stash[LEFT_PROGRAMS] = True
