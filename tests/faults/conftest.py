"""Fixtures of this folder: fast compilation, a server and a run without faults."""

import contextlib

import jax
import pytest

from agentgym_jax.jobs import job
from tests.faults import runs


@contextlib.contextmanager
def _compiled_fast_for_one_device():
    """Trains on one of the test session's eight devices, without most XLA optimisations."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "build_layouts", lambda mesh, **_: (None, None))
        yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module", autouse=True)
def fast():
    """Sets up one module, because the process also tests other folders."""
    with _compiled_fast_for_one_device():
        yield


@pytest.fixture(scope="session")
def servers():
    with runs.serving() as servers:
        yield servers


@pytest.fixture(scope="session")
def url(servers):
    return servers.urls["tally"]


@pytest.fixture(scope="session")
def undisturbed(url, tmp_path_factory):
    """Trains without faults; returns the run folder that every disturbed run must equal."""
    workdir = tmp_path_factory.mktemp("undisturbed") / "run"
    with _compiled_fast_for_one_device():  # this fixture runs before the module's `fast`
        runs.train(runs.config(url), workdir)
    return workdir
