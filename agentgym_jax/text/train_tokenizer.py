"""Trains a small byte-level BPE on the texts of an environment, for models of a few layers.

Ordinary tokenizers never merge across words. The observations of a text environment are made of
few phrases, and tokens that span words make them several times shorter: with merges that cross
words but not the parts that vary (colours, objects, digits), a phrase such as " steps to your
right" is one token. What varies is isolated by a regular expression, so that the model still sees
it as tokens of its own.
"""

import pathlib
import re
from collections.abc import Iterable

import tokenizers
from absl import logging
from tokenizers import decoders, models, pre_tokenizers, trainers

from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.template import COMPACT, ChatTemplate
from agentgym_jax.text.tokenizer import Tokenizer

END_OF_TEXT = "<|endoftext|>"  # also serves as padding token in exports
_SPECIAL = re.compile(r"<\|\w+\|>")


def train_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int,
    isolate: str,
    out: pathlib.Path,
    template: str = COMPACT,
) -> Tokenizer:
    """Trains a tokenizer and writes it as a Hugging Face directory.

    Equal texts in equal order give equal files. Every text can be encoded, since all 256 bytes
    are tokens.

    Args:
      texts: what the model will read and write, in the frequencies in which it will.
      vocab_size: number of tokens, special tokens and the 256 bytes included. The result is
        smaller if the texts have no more pairs to merge.
      isolate: regular expression (Oniguruma); no token crosses an end of one of its matches.
      out: directory to write; existing tokenizer files in it are replaced.
      template: Jinja source of the conversation format, `template.CHATML` or `template.COMPACT`.
        Every `<|name|>` that it writes becomes a special token. It is stored as it is: unlike
        Qwen2.5's own, these two write no system message that nobody gave.

    Raises:
      ValueError: `vocab_size` has no room for bytes and special tokens, or the template is not
        append-only.
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
    backend = _train(texts, vocab_size=vocab_size, isolate=isolate, specials=specials)
    config = {
        "eos_token": ends[0],
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
    }
    tokenizer = Tokenizer(backend.to_str(), config)
    ChatRenderer(tokenizer)  # a tokenizer that cannot write an episode is not worth saving
    tokenizer.save(out)
    logging.info("trained a tokenizer of %d tokens: %s", tokenizer.vocab_size, out)
    return tokenizer


def _train(
    texts: Iterable[str], *, vocab_size: int, isolate: str, specials: list[str]
) -> tokenizers.Tokenizer:
    """Byte-level BPE whose words are the stretches between matches of `isolate`."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(isolate), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return backend
