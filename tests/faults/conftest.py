"""What the runs of this folder share: compiled programs, a server, a run without any fault."""

import contextlib

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from agentgym_jax.run import rl as run_rl
from tests.faults import runs

OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_disable_most_optimizations": True,
}


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("xla"))


@contextlib.contextmanager
def _compiled_once_and_fast(cache):
    """Programs are compiled once for all runs, and fast rather than to be fast."""
    options = OPTIONS | {"jax_compilation_cache_dir": cache}
    before = {name: jax.config.values[name] for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # without it, JAX stays with the first folder that it had
    with pytest.MonkeyPatch.context() as patch:
        # One of the eight devices that the tests have.
        patch.setattr(run_rl, "build_layouts", lambda mesh: (None, None))
        yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module", autouse=True)
def fast(cache):
    """Ends with the module: the same process has other folders to test."""
    with _compiled_once_and_fast(cache):
        yield


@pytest.fixture(scope="session")
def servers():
    with runs.serving() as servers:
        yield servers


@pytest.fixture(scope="session")
def url(servers):
    return servers.urls["tally"]


@pytest.fixture(scope="session")
def undisturbed(url, cache, tmp_path_factory):
    """The run that every disturbed one must equal."""
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    with _compiled_once_and_fast(cache):  # made before the module has it
        runs.train(runs.config(url), workdir)
    return workdir
