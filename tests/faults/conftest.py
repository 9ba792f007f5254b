"""Fixtures of this folder: compiled programs, a server and a run without faults."""

import contextlib

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from agentgym_jax.jobs import job
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
    """Compiles each program once for all runs, without most XLA optimisations."""
    options = OPTIONS | {"jax_compilation_cache_dir": cache}
    before = {name: jax.config.values[name] for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # otherwise JAX would keep using its first cache folder
    with pytest.MonkeyPatch.context() as patch:
        # The runs use one of the test session's eight devices.
        patch.setattr(job, "build_layouts", lambda mesh, **_: (None, None))
        yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module", autouse=True)
def fast(cache):
    """Sets up fast compilation for one module, because the process also tests other folders."""
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
    """Trains without faults; returns the run folder that every disturbed run must equal."""
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    with _compiled_once_and_fast(cache):  # this fixture runs before the module's `fast`
        runs.train(runs.config(url), workdir)
    return workdir
