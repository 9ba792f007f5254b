"""Text agents: scripted agents (the expert, random valid actions) and chat endpoints.

The API key of an endpoint is never written to a file. Redirects are not followed, because a
redirect would send the key to another address.
"""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import random
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from absl import logging

from agentgym_jax.client.actions import ActionFormat
from agentgym_jax.client.errors import EnvError
from agentgym_jax.client.oracle_clients import GuidedObservation
from agentgym_jax.client.transport import HttpTransport
from agentgym_jax.limits import Range
from agentgym_jax.rollout.agents import Answer, Moment, PromptTooLongError

_CHAT, _MODELS = "/chat/completions", "/models"
_RETRIED = (408, 409, 425, 429, 500, 502, 503, 504, 529)  # status codes of temporary errors
_BACKOFF_S, _BACKOFF_MAX_S = 0.5, 20.0
_STOP_POLL_S = 0.25
# Signs that a conversation is too long: OpenAI's error code, and phrases of other servers.
_TOO_LONG = ("context_length_exceeded", "context length", "context window", "too many tokens")


class AgentError(RuntimeError):
    """The agent cannot start or continue. Finished episodes are kept; the message has a remedy."""


class AgentStopped(AgentError):
    """The user requested a stop while the agent waited for a reply."""


class ScriptedAgent:
    """Agent that takes an action offered by the environment: the expert's or a random valid one.

    A random action is drawn uniformly from a generator seeded by (seed, item, sample, turn).

    Raises:
      AgentError: An environment needs an action format that scripted agents do not write.
    """

    concurrency = 8  # more do not help, because the environment, often one process, does the work
    may_wait = False

    def __init__(self, formats: Mapping[str, ActionFormat]):
        for name, written in formats.items():
            if written not in (ActionFormat.REACT, ActionFormat.REACT_OR_BARE, ActionFormat.RAW):
                raise AgentError(
                    f"scripted agents write their actions as {ActionFormat.REACT} or "
                    f"{ActionFormat.RAW}, and config.environments.{name}.action_format asks for "
                    f"{written}: set it to ''"
                )
        self._formats = formats

    def answer(self, moment: Moment) -> Answer:
        """Returns an offered action, or a text without an action if the environment offers none."""
        seen = moment.observation
        offered = seen.offered if isinstance(seen, GuidedObservation) else ()
        if not offered:
            return Answer("There is nothing to do.")
        action = random.Random(moment.key).choice(offered)
        is_raw = self._formats[moment.request.task.environment] is ActionFormat.RAW
        return Answer(action if is_raw else f"Action: {action}")

    def close(self) -> None:
        """Does nothing, because answers are immediate."""


@dataclasses.dataclass(frozen=True)
class EndpointSettings:
    """Section `endpoint` of a config: requests to an OpenAI-compatible model.

    Attributes:
      model: Model name in every request; if empty, the only model that the endpoint lists.
      key_variable: Environment variable that holds the API key; the variable may be unset.
      workers: Maximum number of concurrent requests, one per episode.
      connect_timeout_s: Limit for opening a connection.
      timeout_s: Limit for one answer.
      patience_s: Maximum time for retrying a request that fails with a temporary error.
      send_seed: True to send a `seed` for reproducible sampling; some servers reject the field.
      max_tokens_field: Name of the request field with the token limit of a turn.
    """

    model: str
    key_variable: str
    workers: Annotated[int, Range(1)]
    connect_timeout_s: Annotated[float, Range(above=0, unit="seconds")]
    timeout_s: Annotated[float, Range(above=0, unit="seconds")]
    patience_s: Annotated[float, Range(0, unit="seconds")]
    send_seed: bool
    max_tokens_field: str

    def __post_init__(self) -> None:
        for name in ("key_variable", "max_tokens_field"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty")


class EndpointAgent:
    """Agent that sends every turn to an OpenAI-compatible chat endpoint.

    Raises:
      AgentError: The address or the key cannot be used, or the endpoint names no model.
      AgentStopped: `should_stop` returned True while the endpoint was asked for its model.
    """

    may_wait = True

    def __init__(self, url: str, settings: EndpointSettings, should_stop: Callable[[], bool]):
        self.concurrency = settings.workers
        self._settings = settings
        self._address, self._prefix = split_url(url)
        self._key = os.environ.get(settings.key_variable, "")
        self._closed = threading.Event()
        try:
            self._http = HttpTransport(
                self._address,
                connect_timeout_s=settings.connect_timeout_s,
                step_timeout_s=settings.timeout_s,
                token=self._key or None,
                connections=settings.workers,
            )
        except ValueError as error:
            raise AgentError(f"--model: {error}") from error
        self.model = settings.model or self._find_model(should_stop)

    def answer(self, moment: Moment) -> Answer:
        """Returns the completion of the conversation."""
        sampling = moment.request.sampling
        request = {
            "model": self.model,
            "messages": [dict(message) for message in moment.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            self._settings.max_tokens_field: sampling.max_turn_tokens,
        }
        if self._settings.send_seed:
            digest = hashlib.sha256(moment.key.encode()).digest()
            request["seed"] = int.from_bytes(digest[:4], "big") >> 1  # the shift keeps 31 bits
        reply = self._exchange("POST", _CHAT, request)
        try:
            choice = json.loads(reply)["choices"][0]
            text = choice["message"]["content"] or ""
            is_stopped = choice["finish_reason"] != "length"
        except (LookupError, TypeError, ValueError) as error:
            raise AgentError(
                f"{self._url(_CHAT)} answered {self._hide_key(reply)[:200]!r}, expected a chat "
                "completion with choices[0].message.content and finish_reason"
            ) from error
        if not isinstance(text, str):
            raise AgentError(f"{self._url(_CHAT)}: the content is {type(text).__name__}")
        return Answer(text, is_stopped)

    def close(self) -> None:
        """Ends all waits for a retry. The agent can still be used afterwards."""
        closed, self._closed = self._closed, threading.Event()
        closed.set()
        self._http.disconnect()

    def _find_model(self, should_stop: Callable[[], bool]) -> str:
        """Returns the name of the endpoint's only model.

        A thread sends the request, because a stop must end the wait for a slow endpoint.
        """
        model: concurrent.futures.Future[str] = concurrent.futures.Future()

        def ask() -> None:
            try:
                model.set_result(self._only_model())
            except AgentError as error:
                model.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        while not should_stop():
            with contextlib.suppress(TimeoutError):
                return model.result(timeout=_STOP_POLL_S)
        self.close()
        raise AgentStopped(f"stopped while {self._address} was asked for its model")

    def _only_model(self) -> str:
        reply = self._exchange("GET", _MODELS, None)
        try:
            names = [entry["id"] for entry in json.loads(reply)["data"]]
        except (LookupError, TypeError, ValueError) as error:
            raise AgentError(
                f"{self._url(_MODELS)} lists no models; name one with --config.endpoint.model="
            ) from error
        if len(names) != 1:
            raise AgentError(
                f"{self._url(_MODELS)} has {len(names)} models ({', '.join(names[:5])}); choose "
                "one with --config.endpoint.model="
            )
        return names[0]

    def _exchange(self, method: str, route: str, request: Any) -> str:
        """Returns the text of the reply; retries temporary errors for up to `patience_s`."""
        closed = self._closed  # `close` replaces the event, so a close ends only earlier requests
        deadline = time.monotonic() + self._settings.patience_s
        for attempt in itertools.count(1):
            try:
                status, data = self._http.exchange(method, self._prefix + route, request, None)
            except EnvError as error:
                problem = self._hide_key(str(error))
            else:
                if status == 200:
                    return data.decode(errors="replace")
                text = self._hide_key(data.decode(errors="replace"))
                if status not in _RETRIED:
                    raise self._refusal(route, status, text)
                problem = f"status {status}: {text[:300]}"
            pause_s = min(_BACKOFF_MAX_S, _BACKOFF_S * 2 ** min(attempt - 1, 16))
            pause_s *= random.uniform(0.5, 1.0)
            if time.monotonic() + pause_s > deadline:
                raise AgentError(
                    f"{self._url(route)} failed {attempt} times in {self._settings.patience_s:g} s,"
                    f" at last: {problem}. The same command resumes the evaluation; "
                    "--config.endpoint.patience_s waits longer"
                )
            logging.warning("%s: %s; again in %.1f s", self._url(route), problem, pause_s)
            if closed.wait(pause_s):
                break
        raise AgentStopped("the evaluation is stopping")

    def _refusal(self, route: str, status: int, reply: str) -> Exception:
        is_too_long = any(words in reply.lower() for words in _TOO_LONG)
        if route == _CHAT and status in (400, 413, 422) and is_too_long:
            return PromptTooLongError(reply[:300])
        hint = ""
        if status in (401, 403):
            hint = (
                f". The key is read from the environment variable {self._settings.key_variable}, "
                f"which {'was refused' if self._key else 'is not set'}"
            )
        return AgentError(f"{self._url(route)} answered status {status}: {reply[:300]}{hint}")

    def _url(self, route: str) -> str:
        return f"{self._address}{self._prefix}{route}"

    def _hide_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def split_url(url: str) -> tuple[str, str]:
    """Splits a URL into the server address and the path before `/chat/completions` (default `/v1`).

    Raises:
      AgentError: The URL has a user name, a password or a query, which would be written to files.
    """
    parsed = urllib.parse.urlsplit(url)
    if "@" in parsed.netloc or parsed.query:
        raise AgentError(
            "--model: an address with a password or query would be written to config.json; put the "
            "key into the environment variable named by config.endpoint.key_variable"
        )
    path = parsed.path.rstrip("/").removesuffix(_CHAT)
    return f"{parsed.scheme}://{parsed.netloc}", path or "/v1"
