"""Requests to an OpenAI-compatible chat endpoint: address, key, kinds of failures, completions.

The API key is removed from every text that this module returns. Redirects are not followed, because
a redirect would send the key to another address.
"""

import dataclasses
import random
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Any

from agentgym_envs.base.protocol import read_json
from agentgym_jax.client.errors import EnvError
from agentgym_jax.client.transport import HttpTransport

CHAT, MODELS = "/chat/completions", "/models"
_RETRIED = (408, 409, 425, 429, 500, 502, 503, 504, 529)  # status codes of temporary errors
_BACKOFF_S, _BACKOFF_MAX_S = 0.5, 20.0
_SHOWN = 300  # characters of a reply in an error message


class TemporaryError(Exception):
    """A request failed in a way that can disappear; the caller decides about a retry."""


class RefusedError(Exception):
    """The endpoint rejected a request, and would reject it again.

    Attributes:
      status: HTTP status of the reply.
      reply: Text of the reply, without the key.
    """

    def __init__(self, message: str, status: int, reply: str):
        super().__init__(message)
        self.status = status
        self.reply = reply


class CompletionError(ValueError):
    """The reply is not a chat completion."""


@dataclasses.dataclass(frozen=True)
class Completion:
    """First choice of a chat completion.

    Attributes:
      text: Content of the message; empty if the content is null.
      is_cut: True if a token limit ended the text.
      prompt_tokens: Tokens of the prompt as counted by the endpoint; 0 if it does not say.
      completion_tokens: Tokens of the answer, in the same way.
    """

    text: str
    is_cut: bool
    prompt_tokens: int
    completion_tokens: int


def split_url(url: str) -> tuple[str, str]:
    """Splits a URL into the server address and the path before `/chat/completions` (default `/v1`).

    Raises:
      ValueError: The URL has a user name, a password or a query, which would be written to files.
    """
    parsed = urllib.parse.urlsplit(url)
    if "@" in parsed.netloc or parsed.query:
        raise ValueError(
            "an address with a password or query would be written to config.json; put the key into "
            "the environment variable named by key_variable"
        )
    path = parsed.path.rstrip("/").removesuffix(CHAT)
    return f"{parsed.scheme}://{parsed.netloc}", path or "/v1"


class ChatEndpoint:
    """Connection to a chat endpoint. Thread-safe.

    Args:
      url: Address as in `split_url`.
      key: API key; empty for none.
      key_variable: Name of the key's environment variable, for messages; empty for none.

    Raises:
      ValueError: The address cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str,
        key_variable: str,
        connect_timeout_s: float,
        timeout_s: float,
        connections: int,
    ):
        self.address, self._prefix = split_url(url)
        self._key = key
        self._key_variable = key_variable
        self._closed = threading.Event()
        self._http = HttpTransport(
            self.address,
            connect_timeout_s=connect_timeout_s,
            step_timeout_s=timeout_s,
            token=key or None,
            connections=connections,
        )

    @property
    def closed(self) -> threading.Event:
        """Returns the event that the next `close` sets. Each `close` puts a new event here."""
        return self._closed

    def url(self, route: str) -> str:
        """Returns the address of a route, for messages."""
        return f"{self.address}{self._prefix}{route}"

    def request(self, method: str, route: str, body: Mapping[str, Any] | None) -> str:
        """Sends one request and returns the text of the reply, whose status is 200.

        Raises:
          TemporaryError: The connection failed, or the status is that of a temporary error.
          RefusedError: The reply has another status.
        """
        try:
            status, data = self._http.exchange(method, self._prefix + route, body, None)
        except EnvError as error:
            raise TemporaryError(self.hide_key(str(error))) from error
        text = data.decode(errors="replace")
        if status == 200:
            return text
        text = self.hide_key(text)
        if status in _RETRIED:
            raise TemporaryError(f"status {status}: {text[:_SHOWN]}")
        hint = ""
        if status in (401, 403) and self._key_variable:
            hint = (
                f". The key is read from the environment variable {self._key_variable}, "
                f"which {'was refused' if self._key else 'is not set'}"
            )
        message = f"{self.url(route)} answered status {status}: {text[:_SHOWN]}{hint}"
        raise RefusedError(message, status, text)

    def complete(self, body: Mapping[str, Any]) -> Completion:
        """Sends one chat request and returns its completion.

        Raises:
          TemporaryError, RefusedError: As `request`.
          CompletionError: The reply is not a chat completion.
        """
        reply = self.request("POST", CHAT, body)
        try:
            document = read_json(reply)
            choice = document["choices"][0]
            text = choice["message"]["content"] or ""
            is_cut = choice["finish_reason"] == "length"
        except (LookupError, TypeError, ValueError) as error:
            raise CompletionError(
                f"{self.url(CHAT)} answered {self.hide_key(reply)[:200]!r}, expected a chat "
                "completion with choices[0].message.content and finish_reason"
            ) from error
        if not isinstance(text, str):
            raise CompletionError(f"{self.url(CHAT)}: the content is {type(text).__name__}")
        usage = document["usage"] if "usage" in document else None
        return Completion(
            text, is_cut, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        )

    def hide_key(self, text: str) -> str:
        """Returns the text without the key."""
        return text.replace(self._key, "***") if self._key else text

    def close(self) -> None:
        """Ends all waits on `closed`. The endpoint can still be used afterwards."""
        closed, self._closed = self._closed, threading.Event()
        closed.set()
        self._http.disconnect()


def backoff_s(failures: int) -> float:
    """Returns the pause in seconds after this number of failures: 0.5 s, doubled, with jitter."""
    pause_s = min(_BACKOFF_MAX_S, _BACKOFF_S * 2 ** min(failures - 1, 16))
    return pause_s * random.uniform(0.5, 1.0)


def _count(usage: Any, name: str) -> int:
    """Returns a number of tokens, or 0 if the endpoint gave none."""
    value = usage[name] if isinstance(usage, Mapping) and name in usage else None
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return max(0, value)
