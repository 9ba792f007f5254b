"""Reads the bodies of requests, within limits on their size and time."""

import asyncio

from starlette.requests import Request

from agentgym_jax.serving.error_answers import SLOW, TOO_LARGE
from agentgym_jax.serving.requests import OverloadedError, RequestError

MAX_BODY = 32 * 2**20  # bytes
_MAX_UNREAD = 8 * MAX_BODY  # bytes of a longer body that are read so that its sender gets an answer
_MAX_BODIES = 8 * MAX_BODY  # bytes of all bodies that are being read
READ_S = 60.0  # time for a body, in seconds


async def read_body(request: Request) -> bytes:
    """Returns the body of a request.

    Raises:
      RequestError: It exceeds MAX_BODY, or takes longer than `READ_S`.
      OverloadedError: All bodies that are being read exceed `_MAX_BODIES`.
    """
    body, count, state = bytearray(), 0, request.app.state
    try:
        async with asyncio.timeout(READ_S):
            async for part in request.stream():
                count += len(part)
                if count <= MAX_BODY:
                    body += part
                    state.body_bytes += len(part)
                elif count > _MAX_UNREAD:
                    break
                if state.body_bytes > _MAX_BODIES:
                    raise OverloadedError("other requests with large bodies are being read")
    except TimeoutError:
        raise RequestError(f"the body took more than {READ_S:g} s; send it faster", SLOW) from None
    finally:
        state.body_bytes -= len(body)
    if count > MAX_BODY:
        raise RequestError(f"the body exceeds {MAX_BODY} bytes; send less", TOO_LARGE)
    return bytes(body)
