"""Requests to a served policy and their results, independent of the wire format."""

import concurrent.futures
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

EPISODE_LIMIT = "episode_limit"  # code of the error after the last turn of an episode


class RequestError(ValueError):
    """A request cannot be served as it is.

    Attributes:
      code: Code of OpenAI's error body, such as `context_length_exceeded`.
      param: Field of the request at fault; None for the whole request.
    """

    def __init__(self, message: str, code: str = "invalid_value", param: str | None = None):
        super().__init__(message)
        self.code = code
        self.param = param


def check_ids(tokens: Iterable[int], vocab_size: int, field: str) -> None:
    """Raises RequestError that names a field if the model has not all of its tokens."""
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise RequestError(
                f"{field} has the token id {token}; the ids of this model are below {vocab_size}",
                param=field,
            )


class OverloadedError(Exception):
    """Too many requests wait already (HTTP 429)."""


class NotServingError(Exception):
    """The policy does not sample at present, such as during an update (HTTP 503)."""


@dataclasses.dataclass(frozen=True)
class Constraint:
    """Form of an answer; it has a text, or calls, or is one of both.

    Attributes:
      field: Field of the request that demands the form.
      text: Lark expression of a text; empty if the answer has calls.
      is_grammar: True if `text` is a whole grammar; then there are no calls.
      tools: Definitions of the tools that the answer may call, in OpenAI's format.
      is_single: True for one call at most.
      is_free: True if any text may precede the calls or stand in their place.
    """

    field: str
    text: str = ""
    is_grammar: bool = False
    tools: Sequence[Mapping[str, Any]] = ()
    is_single: bool = False
    is_free: bool = False


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Sampling parameters of one request; None selects the default of the server.

    Attributes:
      temperature: Sampling temperature; 0 is greedy.
      top_k: Number of likeliest tokens that may be sampled; 0 allows all.
      top_p: Probability mass of the likeliest tokens that may be sampled; 1 allows all.
      max_tokens: Maximum number of sampled tokens.
      stop: Strings that end the text; the text ends before the first of them.
      stop_ids: Token ids that end the text, besides the model's own; the text ends before them.
      seed: Random seed; requests with the same seed and prompt have the same result.
      frequency_penalty, presence_penalty, repetition_penalty, min_p, logit_bias: Changes of the
        logits, as in `LogitOptions`.
      constraint: Form of the answer; None for any.
      name: Name of the answer among those of its episode; empty for none.
      version: Least version of the weights, for which the request waits; None for any.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    stop_ids: Collection[int] = ()
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    min_p: float | None = None
    logit_bias: Mapping[int, float] | None = None
    constraint: Constraint | None = None
    name: str = ""
    version: int | None = None


def answer_name(response_id: str, choice: int) -> str:
    """Returns the name of a choice of a response."""
    return f"{response_id}/{choice}"


@dataclasses.dataclass(frozen=True)
class Generation:
    """Finished result of a request; n is the number of sampled tokens.

    Attributes:
      prompt_ids: Token ids before the first sampled token, int32.
      token_ids: Sampled tokens, int32 [n], with the stop token if one was sampled.
      logprobs: Log-probabilities of the sampled tokens, float32 [n].
      text: Sampled text without the stop token, cut before a stop string.
      finish_reason: `stop` (a stop token or string) or `length` (a token limit).
      version: Version of the weights.
      stop: Stop string that ended the text; empty if none did.
    """

    prompt_ids: np.ndarray
    token_ids: np.ndarray
    logprobs: np.ndarray
    text: str
    finish_reason: str
    version: int
    stop: str = ""

    @classmethod
    def empty(cls, prompt_ids: Sequence[int]) -> "Generation":
        """Returns the result of a request for no token."""
        none = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return cls(np.asarray(prompt_ids, np.int32), *none, "", "length", -1)


# Called with the ids sampled so far, in the thread of the engine, so it must not block. Only the
# result has the last tokens: they may contain a stop token or stop string.
OnTokens = Callable[[Sequence[int]], None]


@dataclasses.dataclass(frozen=True)
class Pending:
    """A submitted request.

    Attributes:
      result: Future of the result. It raises RequestError or NotServingError, and CancelledError
        after `cancel`.
      cancel: Function that ends the request and frees its cache row; it may be called from any
        thread and at any time.
      num_prompt: Number of tokens before the first sampled one.
    """

    result: "concurrent.futures.Future[Generation]"
    cancel: Callable[[], None]
    num_prompt: int = 0


class Chat(Protocol):
    """Interface of a server to one set of conversations: of all clients, or of one episode."""

    def submit_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        on_tokens: OnTokens | None = None,
    ) -> Pending:
        """Samples the next assistant message of a conversation.

        Args:
          messages: Messages with `role` (system, user, assistant, tool) and `content` (text).
            Assistant messages may have `tool_calls`, as in OpenAI's format; tool messages have
            `tool_call_id`.
          tools: Tool definitions in OpenAI's format; empty for none.
          sampling: Sampling parameters.
          on_tokens: Callback with all tokens sampled so far; None for none.

        Raises:
          RequestError: The messages cannot be rendered, or do not fit the context.
          OverloadedError: Too many requests wait already.
          NotServingError: The policy does not sample at present.
        """

    def submit_tokens(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_tokens: OnTokens | None = None
    ) -> Pending:
        """Samples tokens after at least one token id of the model; raises the errors of `submit_chat`."""

    def count_tokens(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> int:
        """Returns the number of tokens of the prompt that `submit_chat` would have.

        Raises:
          RequestError: The messages cannot be rendered.
        """
