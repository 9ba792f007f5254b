"""Clients of environment servers that wait as long as a loaded machine needs, and their errors."""

import pytest

from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvError
from tests.waiting import PATIENCE_S

LIMITS = dict(connect_timeout_s=PATIENCE_S, step_timeout_s=PATIENCE_S)


def connect(url, environment="textcraft", **options):
    """Returns a client; `options` replace its limits or add others."""
    return EnvClient(url, environment, **LIMITS | options)


def failure(call, *arguments):
    """Returns the error of a call."""
    with pytest.raises(EnvError) as caught:
        call(*arguments)
    return caught.value
