"""Answers of a model in this process, without a server."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_jax.serving.backend import ModelBackend
from agentgym_jax.serving.requests import Generation, NotServingError, Sampling

# One user message, or messages with `role` and `content`.
Messages = str | Sequence[Mapping[str, Any]]


class LoadedPolicy:
    """Model that answers conversations until it is closed; usable as a context manager.

    Conversations that begin with the messages and the answer of an earlier request continue in its
    cache.

    Attributes:
      context: Maximum number of tokens of a conversation with its answer.
    """

    def __init__(self, backend: ModelBackend):
        """Starts the engine of a backend."""
        self.name = backend.model_name
        self.context = backend.context_length
        self._engine = backend.engine
        self._chat = backend.chat(None)
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(self._engine.running())

    def chat(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        seed: int | None = None,
    ) -> str:
        """Returns the text of the next message of a conversation.

        Args:
          messages: Text of one user message, or messages with `role` and `content`.
          tools: Tool definitions in OpenAI's format.
          temperature: Sampling temperature; 0 is greedy.
          top_k: Number of likeliest tokens that may be sampled; None or 0 allows all.
          top_p: Probability mass of the likeliest tokens that may be sampled; None allows all.
          max_tokens: Maximum number of sampled tokens; None is limited by the context only.
          stop: Strings that end the text; the text ends before the first of them.
          seed: Random seed; None draws a new one for each call.

        Raises:
          RequestError: The messages cannot be rendered, or do not fit the context.
          NotServingError: The policy is closed.
        """
        (answer,) = self.generate(
            [messages],
            tools=tools,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            max_tokens=max_tokens,
            stop=stop,
            seed=seed,
        )
        return answer.text

    def generate(
        self,
        conversations: Sequence[Messages],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        **sampling: Any,
    ) -> list[Generation]:
        """Returns the next message of several conversations, which are sampled together.

        Each result has the text, the token ids and their log-probabilities. The arguments
        `sampling` are the fields of `Sampling`, which `chat` describes; the temperature is 0 by
        default. Raises the errors of `chat`.
        """
        options = Sampling(**{"temperature": 0.0, **sampling})
        pending = []
        try:
            for messages in conversations:
                if isinstance(messages, str):
                    messages = [{"role": "user", "content": messages}]
                pending.append(self._chat.submit_chat(messages, tools, options))
            return [request.result.result() for request in pending]
        except NotServingError:
            self._engine.check()  # raises the error that ended the engine
            raise
        except BaseException:
            for request in pending:
                request.cancel()  # has no effect on a finished request
            raise

    def close(self) -> None:
        """Stops the engine and frees the rows of its cache; later requests raise an error."""
        self._stack.close()

    def __enter__(self) -> "LoadedPolicy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
