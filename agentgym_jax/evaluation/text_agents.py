"""Text agents: scripted agents (the expert, random valid actions) and chat endpoints."""

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
from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar

from absl import logging

from agentgym_jax.checks.limits import PositiveSeconds, Range, Seconds
from agentgym_jax.client.actions import ActionFormat
from agentgym_jax.client.chat_endpoint import (
    CHAT,
    MODELS,
    ChatEndpoint,
    Completion,
    CompletionError,
    RefusedError,
    TemporaryError,
    backoff_s,
    split_url,
)
from agentgym_jax.client.oracle_clients import GuidedObservation
from agentgym_jax.rollout.agents import Answer, Moment, PromptTooLongError

T = TypeVar("T")

_STOP_POLL_S = 0.25
# Signs that a conversation is too long: OpenAI's error code, and phrases of other servers.
_TOO_LONG = ("context_length_exceeded", "context length", "context window", "too many tokens")


class AgentError(RuntimeError):
    """The agent cannot start or continue. Finished episodes are kept; the message has a remedy."""


class AgentStopped(AgentError):
    """The user requested a stop while the agent waited for a reply."""


def check_address(url: str) -> None:
    """Raises AgentError for the address of an endpoint that contains a password or a query."""
    try:
        split_url(url)
    except ValueError as error:
        raise AgentError(f"--model: {error}") from error


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
    connect_timeout_s: PositiveSeconds
    timeout_s: PositiveSeconds
    patience_s: Seconds
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
        try:
            self._endpoint = ChatEndpoint(
                url,
                key=os.environ.get(settings.key_variable, ""),
                key_variable=settings.key_variable,
                connect_timeout_s=settings.connect_timeout_s,
                timeout_s=settings.timeout_s,
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
        try:
            found: Completion = self._retry(CHAT, lambda: self._endpoint.complete(request))
        except CompletionError as error:
            raise AgentError(str(error)) from error
        return Answer(found.text, not found.is_cut)

    def close(self) -> None:
        """Ends all waits for a retry. The agent can still be used afterwards."""
        self._endpoint.close()

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
        raise AgentStopped(f"stopped while {self._endpoint.address} was asked for its model")

    def _only_model(self) -> str:
        url = self._endpoint.url(MODELS)
        reply = self._retry(MODELS, lambda: self._endpoint.request("GET", MODELS, None))
        try:
            names = [entry["id"] for entry in json.loads(reply)["data"]]
        except (LookupError, TypeError, ValueError) as error:
            raise AgentError(
                f"{url} lists no models; name one with --config.endpoint.model="
            ) from error
        if len(names) != 1:
            raise AgentError(
                f"{url} has {len(names)} models ({', '.join(names[:5])}); choose "
                "one with --config.endpoint.model="
            )
        return names[0]

    def _retry(self, route: str, ask: Callable[[], T]) -> T:
        """Returns the result of `ask`; repeats it after temporary errors for up to `patience_s`."""
        closed = self._endpoint.closed  # that of this moment: a close ends only earlier requests
        url, patience_s = self._endpoint.url(route), self._settings.patience_s
        deadline = time.monotonic() + patience_s
        for attempt in itertools.count(1):
            try:
                return ask()
            except RefusedError as error:
                raise self._refusal(route, error) from error
            except TemporaryError as error:
                problem = str(error)
            pause_s = backoff_s(attempt)
            if time.monotonic() + pause_s > deadline:
                raise AgentError(
                    f"{url} failed {attempt} times in {patience_s:g} s, at last: {problem}. The "
                    "same command resumes the evaluation; --config.endpoint.patience_s waits longer"
                )
            logging.warning("%s: %s; again in %.1f s", url, problem, pause_s)
            if closed.wait(pause_s):
                break
        raise AgentStopped("the evaluation is stopping")

    def _refusal(self, route: str, error: RefusedError) -> Exception:
        is_too_long = any(words in error.reply.lower() for words in _TOO_LONG)
        if route == CHAT and error.status in (400, 413, 422) and is_too_long:
            return PromptTooLongError(error.reply[:300])
        return AgentError(str(error))
