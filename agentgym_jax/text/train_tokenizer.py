"""Trains a small byte-level BPE tokenizer on texts of an environment, for models of a few layers.

Tokens may span several words, because observations repeat a few phrases: " steps to your right" is
one token. Variable parts (colours, objects, digits) match a regular expression and stay separate.
"""

import pathlib
import re
from collections.abc import Iterable, Iterator

import tokenizers
from absl import logging
from tokenizers import decoders, models, pre_tokenizers, trainers

from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.template import COMPACT, ChatTemplate
from agentgym_jax.text.tokenizer import Tokenizer

END_OF_TEXT = "<|endoftext|>"  # also the padding token in exported models
# More characters take minutes, in which Ctrl-C has no effect.
_MOST_CHARACTERS = 30_000_000  # of all texts
_LONGEST = 20_000  # of one text
_SPECIAL = re.compile(r"<\|\w+\|>")


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int,
    pretokenizer_pattern: str,
    out: pathlib.Path,
    template: str = COMPACT,
) -> Tokenizer:
    """Trains a tokenizer and writes it as a Hugging Face directory.

    The same texts in the same order give identical files.

    Args:
      texts: Typical observations and actions, in their natural frequencies. The first 20,000
        characters of a text and 30 million of all texts are used.
      vocab_size: Maximum number of tokens, including special tokens and the 256 bytes.
      pretokenizer_pattern: Regular expression (Oniguruma); no token crosses the ends of a match.
      out: Output directory; existing tokenizer files in it are replaced.
      template: Jinja source of the conversation format, such as `template.CHATML`. Every `<|name|>`
        in its output becomes a special token.
    """
    grammar = ChatTemplate(template, {}).grammar()
    markers = _SPECIAL.findall("".join(grammar.literals()))
    specials = list(dict.fromkeys([END_OF_TEXT, *markers]))
    ends = _SPECIAL.findall(grammar.assistant_footer)
    if not ends:
        raise ValueError(
            f"the template ends an answer with {grammar.assistant_footer!r}; expected a special "
            "token of the form <|name|> in it"
        )
    if vocab_size < 256 + len(specials):
        raise ValueError(
            f"vocab_size={vocab_size} has no room for 256 bytes and {len(specials)} special tokens"
        )
    backend = tokenizers.Tokenizer(models.BPE())
    isolate = pre_tokenizers.Split(tokenizers.Regex(pretokenizer_pattern), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([isolate, to_bytes])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(_beginning(texts), trainer)
    config = {
        "eos_token": ends[0],
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
    }
    tokenizer = Tokenizer(backend.to_str(), config)
    ChatRenderer(tokenizer)  # raises ValueError if the tokenizer cannot render an episode
    tokenizer.save(out)
    logging.info("trained a tokenizer of %d tokens: %s", tokenizer.vocab_size, out)
    return tokenizer


def _beginning(texts: Iterable[str]) -> Iterator[str]:
    """Yields the beginnings of texts until they have _MOST_CHARACTERS."""
    left = _MOST_CHARACTERS
    for text in texts:
        beginning = text[: min(left, _LONGEST)]
        yield beginning
        left -= len(beginning)
        if left <= 0:
            logging.warning("the tokenizer is trained on the first %d characters", _MOST_CHARACTERS)
            return
