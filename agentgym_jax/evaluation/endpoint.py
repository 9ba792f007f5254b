"""A player behind an OpenAI-compatible chat endpoint.

The key is read from an environment variable, is sent in the header of the requests and is written
nowhere; redirects, which would carry it elsewhere, are not followed.
"""

import dataclasses
import hashlib
import json
import os
import queue
import random
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

from absl import logging

from agentgym_jax.env_client.errors import EnvError
from agentgym_jax.env_client.transport import HttpTransport
from agentgym_jax.evaluation.players import (
    Answer,
    Moment,
    PlayerError,
    PlayerStopped,
    PromptTooLongError,
)
from agentgym_jax.run.settings import EndpointSettings

_CHAT = "/chat/completions"
_TRY_AGAIN = (408, 409, 425, 429, 500, 502, 503, 504, 529)
_BACKOFF_S, _BACKOFF_MAX_S = 0.5, 20.0
_STOP_POLL_S = 0.25
# How servers say that a conversation is too long: OpenAI's code, and the words of others.
_TOO_LONG = ("context_length_exceeded", "context length", "context window", "too many tokens")


@dataclasses.dataclass(frozen=True)
class _Reply:
    status: int
    body: Any
    text: str


class EndpointPlayer:
    """Asks a chat endpoint for every turn.

    Args:
      url: such as `http://127.0.0.1:8000/v1`.
      settings: the section endpoint.
      should_stop: Returns True when the user asked to stop. Polled while the endpoint is asked for
        its model; afterwards `close` ends all waiting.

    Raises:
      PlayerError: the address or the key cannot be used, or the endpoint names no model.
      PlayerStopped: `should_stop` returned True.
    """

    may_wait = True

    def __init__(self, url: str, settings: EndpointSettings, should_stop: Callable[[], bool]):
        self.concurrency = settings.workers
        self._settings = settings
        self._address, self._prefix = split_url(url)
        self._key = os.environ[settings.key_variable] if settings.key_variable in os.environ else ""
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
            raise PlayerError(f"--model: {error}") from error
        self.model = settings.model or self._find_model(should_stop)

    def answer(self, moment: Moment) -> Answer:
        """See `Player.answer`."""
        sampling = moment.request.sampling
        request = {
            "model": self.model,
            "messages": [dict(message) for message in moment.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            self._settings.max_tokens_field: sampling.max_turn_tokens,
        }
        if self._settings.send_seed:
            request["seed"] = _seed(moment)
        reply = self._exchange("POST", _CHAT, request)
        if reply.status != 200:
            if reply.status in (400, 413, 422) and any(w in reply.text.lower() for w in _TOO_LONG):
                raise PromptTooLongError(reply.text[:300])
            raise self._refused(_CHAT, reply)
        try:
            choice = reply.body["choices"][0]
            text = choice["message"]["content"] or ""
            is_cut = choice["finish_reason"] == "length"
        except (KeyError, IndexError, TypeError) as error:
            raise PlayerError(
                f"{self._where(_CHAT)} answered {reply.text[:200]!r}, expected a chat completion "
                "with choices[0].message.content and finish_reason"
            ) from error
        if not isinstance(text, str):
            raise PlayerError(f"{self._where(_CHAT)}: the content is {type(text).__name__}")
        return Answer(text, is_stopped=not is_cut)

    def close(self) -> None:
        """Wakes whoever waits for another attempt."""
        self._closed.set()
        self._http.disconnect()

    def _find_model(self, should_stop: Callable[[], bool]) -> str:
        """Returns the endpoint's only model; gives up waiting for it when asked to stop.

        A signal handler only sets a flag, and an endpoint may take minutes to answer. So a daemon
        thread asks, and this one polls the flag.
        """
        found: queue.SimpleQueue[str | PlayerError] = queue.SimpleQueue()

        def ask() -> None:
            try:
                found.put(self._only_model())
            except PlayerError as error:
                found.put(error)

        threading.Thread(target=ask, daemon=True).start()
        while True:
            try:
                model = found.get(timeout=_STOP_POLL_S)
            except queue.Empty:
                if not should_stop():
                    continue
                self.close()
                raise PlayerStopped(
                    f"stopped while {self._address} was asked for its model"
                ) from None
            if isinstance(model, PlayerError):
                raise model
            return model

    def _only_model(self) -> str:
        reply = self._exchange("GET", "/models", None)
        if reply.status != 200:
            raise self._refused("/models", reply)
        try:
            names = [entry["id"] for entry in reply.body["data"]]
        except (KeyError, TypeError) as error:
            raise PlayerError(
                f"{self._where('/models')} lists no models; name one with --config.endpoint.model="
            ) from error
        if len(names) != 1:
            raise PlayerError(
                f"{self._where('/models')} has {len(names)} models ({', '.join(names[:5])}); choose "
                "one with --config.endpoint.model="
            )
        return names[0]

    def _exchange(self, method: str, route: str, request: Any) -> _Reply:
        """The first answer that is not a passing refusal; asks again until patience ends."""
        deadline = time.monotonic() + self._settings.patience_s
        attempt = 0
        while True:
            problem, reply = self._try(method, route, request)
            if reply is not None and reply.status not in _TRY_AGAIN:
                return reply
            attempt += 1
            pause_s = min(_BACKOFF_MAX_S, _BACKOFF_S * 2 ** min(attempt - 1, 16))
            pause_s *= random.uniform(0.5, 1.0)
            if time.monotonic() + pause_s > deadline:
                raise PlayerError(
                    f"{self._where(route)} failed {attempt} times in {self._settings.patience_s:g} s, "
                    f"at last: {problem}. The same command goes on from here; "
                    "--config.endpoint.patience_s waits longer"
                )
            logging.warning("%s: %s; again in %.1f s", self._where(route), problem, pause_s)
            if self._closed.wait(pause_s):
                raise PlayerStopped("the evaluation is stopping")

    def _try(self, method: str, route: str, request: Any) -> tuple[str, _Reply | None]:
        try:
            status, data = self._http.exchange(method, self._prefix + route, request, None)
        except EnvError as error:
            return self._clean(str(error)), None
        text = self._clean(data.decode(errors="replace"))
        try:
            body = json.loads(data)
        except json.JSONDecodeError:
            body = None
        return f"status {status}: {text[:300]}", _Reply(status, body, text)

    def _refused(self, route: str, reply: _Reply) -> PlayerError:
        name = self._settings.key_variable
        hint = ""
        if reply.status in (401, 403):
            found = "was refused" if self._key else "is not set"
            hint = f". The key is read from the environment variable {name}, which {found}"
        return PlayerError(
            f"{self._where(route)} answered status {reply.status}: {reply.text[:300]}{hint}"
        )

    def _where(self, route: str) -> str:
        return f"{self._address}{self._prefix}{route}"

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def split_url(url: str) -> tuple[str, str]:
    """Server address and path before `/chat/completions`; `/v1` if the URL has none.

    Raises:
      PlayerError: the URL holds a user name or password, which would end up in files.
    """
    parsed = urllib.parse.urlsplit(url)
    if "@" in parsed.netloc or parsed.query:
        raise PlayerError(
            "--model: an address with a password or query would be written to config.json; put the "
            "key into the environment variable named by config.endpoint.key_variable"
        )
    path = parsed.path.rstrip("/").removesuffix(_CHAT)
    return f"{parsed.scheme}://{parsed.netloc}", path or "/v1"


def _seed(moment: Moment) -> int:
    """31 bits that follow from what is sampled, for endpoints that honour `seed`."""
    request = moment.request
    text = f"{request.seed}/{request.task.item_id}/{request.sample}/{moment.turn}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
