"""Converts a vocabulary with scores or merges, as in `.model` and `.gguf` files, to a fast
tokenizer.

Both functions return the text of a `tokenizer.json`, from which `Tokenizer` is built.
"""

import enum
from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

SPACE = "\u2581"  # character that represents a space in sentencepiece vocabularies


class PieceKind(enum.IntEnum):
    """Type of a vocabulary entry, as numbered by sentencepiece and GGUF."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def from_scores(
    pieces: Sequence[str],
    scores: Sequence[float],
    kinds: Sequence[int],
    *,
    is_unigram: bool,
    normalizer: normalizers.Normalizer | None = None,
) -> str:
    """Converts a sentencepiece vocabulary to the text of a `tokenizer.json`; BPE pairs merge in the
    order of the merged pieces' scores.

    No space is put in front of a text, because a piece of an episode continues the previous piece.

    Args:
      pieces: Text of every id.
      scores: Value of every id: log-probability (unigram) or minus the rank of the merge (BPE).
      kinds: PieceKind of every id.
      is_unigram: True for a unigram model, False for BPE.
      normalizer: Normalizer applied to a text before spaces are replaced.

    Raises:
      ValueError: No piece has the kind UNKNOWN.
    """
    if PieceKind.UNKNOWN not in kinds:
        raise ValueError("sentencepiece vocabulary: no piece of the kind UNKNOWN among its entries")
    unknown = list(kinds).index(PieceKind.UNKNOWN)
    byte_fallback = PieceKind.BYTE in kinds
    model: models.Model
    if is_unigram:
        entries = list(zip(pieces, scores, strict=True))
        model = models.Unigram(entries, unk_id=unknown, byte_fallback=byte_fallback)
    else:
        model = models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=_merges(pieces, scores, kinds),
            unk_token=pieces[unknown],
            fuse_unk=True,
            byte_fallback=byte_fallback,
        )
    backend = tokenizers.Tokenizer(model)
    to_space = normalizers.Replace(" ", SPACE)
    steps = [to_space] if normalizer is None else [normalizer, to_space]
    backend.normalizer = normalizers.Sequence(steps)
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    _add_tokens(backend, pieces, kinds)
    return backend.to_str()


def from_merges(
    pieces: Sequence[str],
    merges: Sequence[tuple[str, str]],
    kinds: Sequence[int],
    *,
    split: Sequence[pre_tokenizers.PreTokenizer],
    normalizer: normalizers.Normalizer | None,
    ignore_merges: bool,
) -> str:
    """Converts a byte-level BPE vocabulary to the text of a `tokenizer.json`.

    Args:
      pieces: Text of every id, in the characters of byte-level vocabularies.
      merges: Pairs in the order in which they merge.
      kinds: PieceKind of every id; UNUSED entries are left out.
      split: Pre-tokenizer that splits a text into words before pairs merge.
      normalizer: Normalizer applied to a text first.
      ignore_merges: Encodes a word in the vocabulary as one token, regardless of the merges.
    """
    vocab = {
        piece: i
        for i, (piece, kind) in enumerate(zip(pieces, kinds, strict=True))
        if kind != PieceKind.UNUSED
    }
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=list(merges), ignore_merges=ignore_merges)
    )
    if normalizer is not None:
        backend.normalizer = normalizer
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*split, to_bytes])
    backend.decoder = decoders.ByteLevel()
    _add_tokens(backend, pieces, kinds)
    return backend.to_str()


def _add_tokens(backend: tokenizers.Tokenizer, pieces: Sequence[str], kinds: Sequence[int]) -> None:
    """Declares control tokens as special, and user-defined tokens as words that are never split."""
    for piece, kind in zip(pieces, kinds, strict=True):
        if kind in (PieceKind.CONTROL, PieceKind.UNKNOWN):
            token = tokenizers.AddedToken(piece, special=True, normalized=False)
            backend.add_special_tokens([token])
        elif kind == PieceKind.USER_DEFINED:
            backend.add_tokens([tokenizers.AddedToken(piece, special=False, normalized=False)])


def _merges(
    pieces: Sequence[str], scores: Sequence[float], kinds: Sequence[int]
) -> list[tuple[str, str]]:
    """Returns all pairs of pieces whose concatenation is a piece, best concatenation first; ties in
    the order of ids.
    """
    ids = {
        piece: i
        for i, (piece, kind) in enumerate(zip(pieces, kinds, strict=True))
        if kind in (PieceKind.NORMAL, PieceKind.USER_DEFINED)
    }
    ranked = []
    for piece, i in ids.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                ranked.append((-scores[i], i, ids[left], ids[right]))
    return [(pieces[left], pieces[right]) for _, _, left, right in sorted(ranked)]
