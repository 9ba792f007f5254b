"""Messages about devices that lack memory or do not exist."""

import jax
import pytest

from agentgym_jax.api import USER_ERRORS
from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.jobs.device_errors import check_devices, device_errors
from agentgym_jax.training import job_kinds
from configs import quickstart

EXHAUSTED = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.\nmany\nlines"


def test_exhausted_memory_names_the_keys_to_lower_with_their_values(monkeypatch):
    """Fails where a job fails: after its parts are open, in the loop."""

    def fail(*_):
        raise jax.errors.JaxRuntimeError(EXHAUSTED)

    monkeypatch.setitem(job_kinds.JOBS, "rl", job_kinds.Job(None, fail, None))
    config = plain(quickstart.get_config("smoke"))
    with pytest.raises(USER_ERRORS) as stopped:
        job_kinds.run_job(config, "nowhere")
    text = str(stopped.value)
    for section, key in (
        ("sampler", "rows"),
        ("learner", "micro_rows"),
        ("model", "remat"),
        ("sampler", "cache_length"),
    ):
        assert f"config.{section}.{key}={config[section][key]!r}" in text
    assert "\n" not in text and "allocate 9 bytes" in text


def test_exhausted_memory_of_a_server_names_its_flags():
    with pytest.raises(USER_ERRORS, match="lower --rows=16 or --context=4096"):
        with device_errors({"rows": 16, "context": 4096}):
            raise jax.errors.JaxRuntimeError(EXHAUSTED)


def test_other_errors_of_a_device_keep_their_traceback():
    with pytest.raises(jax.errors.JaxRuntimeError), device_errors({}):
        raise jax.errors.JaxRuntimeError("INTERNAL: a defect")


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("Unable to initialize\nmore")])
def test_a_platform_without_a_device_gives_one_line(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(jax, "devices", fail)
    with pytest.raises(ConfigError, match="JAX_PLATFORMS=cuda") as refused:
        check_devices()
    assert "\n" not in str(refused.value)
