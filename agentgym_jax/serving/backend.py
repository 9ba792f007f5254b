"""The served policy, as the HTTP application uses it."""

import abc
import concurrent.futures
from collections.abc import Sequence

import numpy as np

from agentgym_jax.sampling.options import SamplingOptions, random_key
from agentgym_jax.serving.answer_parts import AnswerForm
from agentgym_jax.serving.chat_sequences import Conversations
from agentgym_jax.serving.engine import Engine
from agentgym_jax.serving.error_answers import UnknownEpisodeError
from agentgym_jax.serving.requests import Chat
from agentgym_jax.serving.text_scores import TokenScores
from agentgym_jax.text.tokenizer import Tokenizer
from agentgym_jax.text.tool_chat import ToolChat


class Backend(abc.ABC):
    """Interface of the application to the served policy.

    Attributes:
      engine: Engine that samples.
      tokenizer: Tokenizer of the policy; names of special tokens are ordinary text.
      answer_form: Form of sampled answers.
      context_length: Maximum number of tokens of a conversation.
      vocab_size: Number of token ids of the policy.
    """

    model_name: str

    def __init__(self, engine: Engine, tokenizer: Tokenizer, answer_form: AnswerForm):
        self.engine = engine
        self.answer_form = answer_form
        self.context_length = engine.cache_length
        self.vocab_size = engine.vocab_size
        self.tokenizer = tokenizer

    @abc.abstractmethod
    def chat(self, episode: str | None) -> Chat:
        """Returns the conversations of an episode; None for those of all other clients.

        Raises:
          UnknownEpisodeError: There is no such episode.
        """

    @abc.abstractmethod
    def score(self, ids: Sequence[int]) -> "concurrent.futures.Future[TokenScores]":
        """Returns the scores of the tokens of a prompt.

        Raises:
          RequestError: This policy scores no prompts.
        """

    def load(self) -> tuple[int, int]:
        """Returns the number of sampling and of waiting requests."""
        return self.engine.num_active, self.engine.num_waiting


class ModelBackend(Backend):
    """Model that is served to any client."""

    def __init__(
        self,
        engine: Engine,
        encoder: ToolChat,
        tokenizer: Tokenizer,
        defaults: SamplingOptions,
        *,
        model_name: str,
        max_known: int,
    ):
        """Creates the backend; `max_known` answers can be continued."""
        super().__init__(engine, tokenizer, AnswerForm.of(encoder))
        self.model_name = model_name

        def make_key(seed: int | None, number: int) -> np.ndarray:
            return random_key(None if seed is None else str(seed))

        self._chat = Conversations(engine, encoder, defaults, make_key, max_known=max_known)

    def chat(self, episode: str | None) -> Chat:
        """Implements `Backend.chat`."""
        if episode is not None:
            raise UnknownEpisodeError(
                "this server has no episodes; use the routes without /episodes"
            )
        return self._chat

    def score(self, ids: Sequence[int]) -> "concurrent.futures.Future[TokenScores]":
        """Implements `Backend.score`."""
        return self.engine.score(ids)
