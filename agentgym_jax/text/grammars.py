"""Grammars of answers: which tokens may follow those that were sampled (library llguidance).

A grammar is a text in the variant of Lark that llguidance reads:
https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

import functools
import threading
from collections.abc import Sequence

import llguidance
import numpy as np

from agentgym_jax.text.tokenizer import Tokenizer

MAX_CHARACTERS = 65_536
# The library compiles rules and references by recursion, and a stack overflow ends the process. It
# compiled chains of 1,000.
MAX_RULES = 500
_KEPT = 16  # compiled grammars


class TokenMatcher:
    """State of the grammar of one answer.

    Attributes:
      grammar: Text of the grammar.
      error: Reason for which the grammar cannot continue, such as too many states; then only stop
        tokens are allowed. Empty if there is none.
    """

    def __init__(
        self,
        grammar: str,
        matcher: llguidance.LLMatcher,
        stop_ids: Sequence[int],
        num_words: int,
    ):
        self.grammar = grammar
        self._matcher = matcher
        self._stop_ids = stop_ids
        self._num_words = num_words
        self.error = ""

    def allowed(self) -> np.ndarray:
        """Returns the mask of the next token, uint32 words as in `models/token_masks.py`.

        Stop tokens are allowed if the answer may end, and are the only ones if it must.
        """
        mask = np.zeros(self._num_words, np.uint32)
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        bits = bits[: self._num_words]  # the library has one bit more than there are tokens
        if not self._matcher.is_error() and bits.any():
            mask[: len(bits)] = bits
            return mask
        self.error = self.error or _first_line(self._matcher.get_error()) or "no token may follow"
        for token in self._stop_ids:
            mask[token // 32] |= np.uint32(1 << token % 32)
        return mask

    def advance(self, token: int) -> None:
        """Takes the next token, which the mask allowed."""
        if not self.error and token not in self._stop_ids:
            self._matcher.consume_token(token)


class Grammars:
    """Compiles grammars for the tokens of a model. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, stop_ids: Sequence[int], vocab_size: int):
        """Creates the compiler; `vocab_size` is the number of token ids of the model."""
        self._tokenizer = tokenizer
        self._stop_ids = tuple(stop_ids)
        self._num_words = -(-vocab_size // 32)
        self._lock = threading.Lock()
        self._library: llguidance.LLTokenizer | None = None  # takes a second to build
        self._compiled = functools.lru_cache(_KEPT)(self._compile)

    def compile(self, grammar: str) -> TokenMatcher:
        """Returns the state of a grammar before the first token.

        Raises:
          ValueError: The grammar is invalid or too large.
        """
        if len(grammar) > MAX_CHARACTERS:
            raise ValueError(f"the grammar has more than {MAX_CHARACTERS} characters")
        if grammar.count('"$ref"') > MAX_RULES:
            raise ValueError(f"the schema has more than {MAX_RULES} references")
        with self._lock:
            matcher = self._compiled(grammar)
            return TokenMatcher(grammar, matcher.deep_copy(), self._stop_ids, self._num_words)

    def _compile(self, grammar: str) -> llguidance.LLMatcher:
        if self._library is None:
            vocabulary = llguidance.TokenizerWrapper(_Vocabulary(self._tokenizer, self._stop_ids))
            self._library = llguidance.LLTokenizer(vocabulary, eos_token=list(self._stop_ids))
        limits = llguidance.LLParserLimits(verbose_errors=False)
        text = llguidance.LLMatcher.grammar_from_lark(grammar)
        matcher = llguidance.LLMatcher(self._library, text, log_level=0, limits=limits)
        if matcher.is_error():
            raise ValueError(_first_line(matcher.get_error()))
        return matcher


class _Vocabulary:
    """Interface of llguidance to a tokenizer."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, stop_ids: Sequence[int]):
        self.eos_token_id = stop_ids[0]
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        self.special_token_ids = sorted({*tokenizer.special_tokens.values(), *stop_ids})
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text if isinstance(text, str) else text.decode())


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:300]
