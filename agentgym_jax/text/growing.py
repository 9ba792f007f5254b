"""Text of a growing sequence of tokens, of which only the newest are decoded again."""

from collections.abc import Callable, Sequence

_TAIL = 4  # tokens at the end that later ones may change: a character has at most 4 bytes
_WINDOW = 16  # tokens after which a part of the text becomes final
_INCOMPLETE = "\ufffd"


class GrowingText:
    """Decodes a sequence of tokens again and again while tokens are added to it."""

    def __init__(self, decode: Callable[[Sequence[int]], str]):
        self._decode = decode
        self._final = ""  # text of the first `_count` tokens
        self._count = 0
        # Tokens before the others that are decoded with them and then cut off: some tokenizers
        # remove the space before the first word of a text.
        self._context = 0

    def update(self, tokens: Sequence[int]) -> tuple[str, int]:
        """Returns the text of all tokens, and the length of its part that was final before.

        `tokens` must begin with those of the last call.
        """
        unchanged = len(self._final)
        tail = self._text(tokens, self._count, len(tokens), self._context)
        text = self._final + tail
        if len(tokens) - self._count > _WINDOW:
            self._finalise(tokens, tail)
        return text, unchanged

    def _finalise(self, tokens: Sequence[int], tail: str) -> None:
        """Makes the text final up to a place at which both parts have the same text alone."""
        for cut in range(len(tokens) - _TAIL, len(tokens) - 3 * _TAIL, -1):
            first = self._text(tokens, self._count, cut, self._context)
            if first.endswith(_INCOMPLETE):  # may be a part of a character
                continue
            for context in (1, 0):
                rest = self._text(tokens, cut, len(tokens), context)
                if first + rest == tail and not rest.startswith(_INCOMPLETE):
                    self._final += first
                    self._count, self._context = cut, context
                    return

    def _text(self, tokens: Sequence[int], start: int, stop: int, context: int) -> str:
        ids = [int(token) for token in tokens[start - context : stop]]
        return self._decode(ids)[len(self._decode(ids[:context])) if context else 0 :]
