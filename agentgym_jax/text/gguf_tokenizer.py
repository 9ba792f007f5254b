"""Reads the tokenizer of a `.gguf` file: vocabulary, merges or scores, word splitting, chat
template.
"""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, normalizers, pre_tokenizers

from agentgym_jax.text import vocabulary
from agentgym_jax.text.gguf_metadata import read_metadata

# Regular expression for words of byte-level BPE, as in tokenizer.json files; model families differ
# only in the splitting of digits.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2_WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclasses.dataclass(frozen=True)
class _Kind:
    """Pre-tokenization rules of a model family."""

    words: str
    is_nfc: bool = False
    single_digits: bool = False
    ignore_merges: bool = False


QWEN2_WORDS = _WORDS % r"\p{N}"
_QWEN2 = _Kind(QWEN2_WORDS, is_nfc=True)
_LLAMA3 = _Kind(_WORDS % r"\p{N}{1,3}", ignore_merges=True)
_DIGITS = _Kind(_GPT2_WORDS, single_digits=True)

# pre-tokenization rules by the value of `tokenizer.ggml.pre`
KINDS = {
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "gpt-2": _Kind(_GPT2_WORDS),
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
}

_TOKEN_FIELDS = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
}


def read(path: pathlib.Path) -> tuple[str, dict[str, Any]]:
    """Returns the text of a `tokenizer.json` and the contents of a `tokenizer_config.json`.

    Raises:
      ValueError: The file has no tokenizer, or its pre-tokenizer is not in `KINDS`.
    """
    fields = read_metadata(path)
    model = _value(fields, "tokenizer.ggml.model", path)
    pieces = _value(fields, "tokenizer.ggml.tokens", path)
    kinds = _value(fields, "tokenizer.ggml.token_type", path)
    if model == "gpt2":
        backend_json = _from_merges(fields, pieces, kinds, path)
    elif model == "llama":
        scores = _value(fields, "tokenizer.ggml.scores", path)
        backend_json = vocabulary.from_scores(pieces, scores, kinds, is_unigram=False)
    else:
        raise ValueError(f"{path}: tokenizer model {model!r}; expected 'gpt2' or 'llama'")
    config = {name: pieces[fields[key]] for name, key in _TOKEN_FIELDS.items() if key in fields}
    if "tokenizer.chat_template" in fields:
        config["chat_template"] = fields["tokenizer.chat_template"]
    return backend_json, config


def _from_merges(
    fields: Mapping[str, Any], pieces: list[str], kinds: list[int], path: pathlib.Path
) -> str:
    name = _value(fields, "tokenizer.ggml.pre", path)
    if name not in KINDS:
        raise ValueError(
            f"{path}: pre-tokenizer {name!r} is not one of {sorted(KINDS)}. Use the tokenizer.json "
            "of the model, or add its word pattern to KINDS in text/gguf_tokenizer.py"
        )
    kind = KINDS[name]
    digits = [pre_tokenizers.Digits(individual_digits=True)] if kind.single_digits else []
    merges = _value(fields, "tokenizer.ggml.merges", path)
    return vocabulary.from_merges(
        pieces,
        [tuple(merge.split(" ")) for merge in merges],
        kinds,
        split=[*digits, pre_tokenizers.Split(Regex(kind.words), behavior="isolated")],
        normalizer=normalizers.NFC() if kind.is_nfc else None,
        ignore_merges=kind.ignore_merges,
    )


def _value(fields: Mapping[str, Any], key: str, path: pathlib.Path) -> Any:
    """Returns the value of a required metadata field."""
    if key not in fields:
        raise ValueError(f"{path} has no field {key}, which its tokenizer needs")
    return fields[key]
