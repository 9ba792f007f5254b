"""The bytes that each token id stands for, so that a page can show an episode token by token."""

import json
import pathlib
import re
from collections.abc import Iterable

import tokenizers

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # how sentencepiece names a single byte
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)
# Byte-level vocabularies (GPT-2's form) write every byte as one printable character.
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + i): byte for i, byte in enumerate(_OTHERS)
}


def token_pieces(directory: pathlib.Path, ids: Iterable[int]) -> dict[int, str]:
    """Text of tokens as bytes written in latin-1: a token may end inside a character.

    Args:
      directory: the `tokenizer/` of a run folder.
      ids: tokens that are wanted; those that the tokenizer does not know are left out.

    Returns:
      id -> bytes; nothing at all if the folder has no `tokenizer.json`.
    """
    path = directory / "tokenizer.json"
    if not path.exists():
        return {}
    source = path.read_text(encoding="utf-8")
    backend = tokenizers.Tokenizer.from_str(source)
    added = {i: token.content for i, token in backend.get_added_tokens_decoder().items()}
    is_byte_level = _is_byte_level(json.loads(source)["decoder"])
    pieces = {}
    for i in ids:
        name = backend.id_to_token(i)
        if i in added:
            pieces[i] = added[i].encode().decode("latin-1")
        elif name is not None:
            pieces[i] = _as_bytes(name, is_byte_level).decode("latin-1")
    return pieces


def _is_byte_level(decoder: dict | None) -> bool:
    if decoder is None:
        return False
    if decoder["type"] == "Sequence":
        return any(_is_byte_level(part) for part in decoder["decoders"])
    return decoder["type"] == "ByteLevel"


def _as_bytes(name: str, is_byte_level: bool) -> bytes:
    """Bytes of a name of the vocabulary."""
    if is_byte_level and all(character in _BYTE_OF for character in name):
        return bytes(_BYTE_OF[character] for character in name)
    single = _BYTE_TOKEN.fullmatch(name)
    if single:
        return bytes([int(single[1], 16)])
    return name.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()
