"""Reads the tokenizer of a sentencepiece `.model` file."""

import pathlib
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2 as sentencepiece_model
from tokenizers import Regex, normalizers

from agentgym_jax.text import vocabulary

_UNIGRAM, _BPE = 1, 2  # values of ModelType in sentencepiece's TrainerSpec


def read(path: pathlib.Path) -> tuple[str, dict[str, Any]]:
    """Returns the text of a `tokenizer.json` and the contents of a `tokenizer_config.json`.

    The file contains no chat template. sentencepiece puts a space in front of a whole text; this
    tokenizer does not, see `Tokenizer.encode`.

    Raises:
      ValueError: The file is no sentencepiece model, or its model type is word or character.
    """
    proto = sentencepiece_model.ModelProto()  # type: ignore[attr-defined]  # made at import
    try:
        proto.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{path} is not a sentencepiece model: {error}") from error
    model_type = proto.trainer_spec.model_type
    if model_type not in (_UNIGRAM, _BPE):
        raise ValueError(
            f"{path}: sentencepiece model type {model_type}; expected unigram (1) or BPE (2)"
        )
    backend_json = vocabulary.from_scores(
        [piece.piece for piece in proto.pieces],
        [piece.score for piece in proto.pieces],
        [piece.type for piece in proto.pieces],
        is_unigram=model_type == _UNIGRAM,
        normalizer=_normalizer(proto.normalizer_spec),
    )
    trainer = proto.trainer_spec
    names = {
        "bos_token": (trainer.bos_id, trainer.bos_piece),
        "eos_token": (trainer.eos_id, trainer.eos_piece),
        "unk_token": (trainer.unk_id, trainer.unk_piece),
    }
    return backend_json, {key: piece for key, (i, piece) in names.items() if i >= 0}


def _normalizer(spec: Any) -> normalizers.Normalizer | None:
    """Returns a normalizer that applies the model's character table and merges repeated spaces;
    None if neither is needed.
    """
    steps: list[normalizers.Normalizer] = []
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    return normalizers.Sequence(steps) if steps else None
