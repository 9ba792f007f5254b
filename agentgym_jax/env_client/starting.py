"""Waits for a server that is still starting, as one that loads an index does."""

import time

from absl import logging

from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_jax.env_client.client import EnvClient
from agentgym_jax.env_client.errors import EnvCause, EnvError, ServerUnavailable

_PAUSE_S, _PAUSE_MAX_S = 0.1, 2.0

# What a server says, or whatever stands before it, that will answer later.
_NOT_YET = (
    EnvCause.SERVER_GONE,
    EnvCause.CONNECTION,
    EnvCause.TIMEOUT,
    EnvCause.CAPACITY,
    EnvCause.HTTP_STATUS,
)


def spec_when_ready(client: EnvClient, patience_s: float) -> EnvironmentSpec:
    """The server's `EnvClient.spec`, asked for until it answers. Waiting is logged once.

    Args:
      client: of the server.
      patience_s: how long it may fail; a call that is under way at the end is waited for.

    Raises:
      ServerUnavailable: it never answered.
      EnvError: its answer will not change: another environment, a token that it refuses.
    """
    started = time.monotonic()
    pause_s = _PAUSE_S
    while True:
        try:
            return client.spec()
        except EnvError as error:
            if error.cause not in _NOT_YET or not error.retryable_from_reset:
                raise
            waited_s = time.monotonic() - started
            if waited_s + pause_s > patience_s:
                raise ServerUnavailable(
                    error.cause,
                    f"the {client.environment} server at {client.base_url} did not answer within "
                    f"{waited_s:.0f} s; last: {error.message}. Start it, or correct its address; "
                    f"pool.breaker_patience_s={patience_s:g} is how long a server is waited for.",
                ) from error
            if pause_s == _PAUSE_S:
                logging.warning(
                    "the %s server at %s does not answer yet (%s); waiting up to %g s for it",
                    client.environment,
                    client.base_url,
                    error.cause,
                    patience_s,
                )
        time.sleep(pause_s)
        pause_s = min(_PAUSE_MAX_S, 2 * pause_s)
