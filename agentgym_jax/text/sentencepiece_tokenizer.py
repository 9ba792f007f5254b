"""Converts a sentencepiece `.model` file to a fast tokenizer."""

import pathlib
from collections.abc import Sequence
from typing import Any

import tokenizers
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2 as sentencepiece_model
from tokenizers import Regex, decoders, models, normalizers

_SPACE = "\u2581"  # character that represents a space in sentencepiece vocabularies
_UNIGRAM, _BPE = 1, 2  # values of ModelType in sentencepiece's TrainerSpec
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6  # values of SentencePiece.Type


def read(path: pathlib.Path) -> tuple[str, dict[str, Any]]:
    """Returns the text of a `tokenizer.json` and the contents of a `tokenizer_config.json`.

    Unlike sentencepiece, the tokenizer puts no space in front of a text.
    """
    proto = sentencepiece_model.ModelProto()  # type: ignore[attr-defined]  # made at import
    try:
        proto.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{path} is not a sentencepiece model: {error}") from error
    trainer = proto.trainer_spec
    if trainer.model_type not in (_UNIGRAM, _BPE):
        raise ValueError(
            f"{path}: sentencepiece model type {trainer.model_type}; expected unigram (1) or BPE (2)"
        )
    pieces = [piece.piece for piece in proto.pieces]
    kinds = [piece.type for piece in proto.pieces]
    if _UNKNOWN not in kinds:
        raise ValueError(f"{path}: no piece of the kind UNKNOWN among the entries")
    backend = tokenizers.Tokenizer(_model(proto, pieces, kinds))
    steps: list[normalizers.Normalizer] = []
    if proto.normalizer_spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))
    if proto.normalizer_spec.remove_extra_whitespaces:
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    for piece, kind in zip(pieces, kinds, strict=True):
        if kind in (_CONTROL, _UNKNOWN):
            token = tokenizers.AddedToken(piece, special=True, normalized=False)
            backend.add_special_tokens([token])
        elif kind == _USER_DEFINED:
            backend.add_tokens([tokenizers.AddedToken(piece, special=False, normalized=False)])
    names = {
        "bos_token": (trainer.bos_id, trainer.bos_piece),
        "eos_token": (trainer.eos_id, trainer.eos_piece),
        "unk_token": (trainer.unk_id, trainer.unk_piece),
    }
    return backend.to_str(), {key: piece for key, (i, piece) in names.items() if i >= 0}


def _model(proto: Any, pieces: Sequence[str], kinds: Sequence[int]) -> models.Model:
    scores = [piece.score for piece in proto.pieces]
    unknown = list(kinds).index(_UNKNOWN)
    byte_fallback = _BYTE in kinds
    if proto.trainer_spec.model_type == _UNIGRAM:
        entries = list(zip(pieces, scores, strict=True))
        return models.Unigram(entries, unk_id=unknown, byte_fallback=byte_fallback)
    return models.BPE(
        vocab={piece: i for i, piece in enumerate(pieces)},
        merges=_merges(pieces, scores, kinds),
        unk_token=pieces[unknown],
        fuse_unk=True,
        byte_fallback=byte_fallback,
    )


def _merges(
    pieces: Sequence[str], scores: Sequence[float], kinds: Sequence[int]
) -> list[tuple[str, str]]:
    """Returns all pairs that form a piece, highest score of the piece first, then by ids."""
    ids = {
        piece: i
        for i, (piece, kind) in enumerate(zip(pieces, kinds, strict=True))
        if kind in (_NORMAL, _USER_DEFINED)
    }
    ranked = []
    for piece, i in ids.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                ranked.append((-scores[i], i, ids[left], ids[right]))
    return [(pieces[left], pieces[right]) for _, _, left, right in sorted(ranked)]
