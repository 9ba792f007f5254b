"""Protobuf messages of Tinker's wire, as SDK 0.38 writes and reads them.

The field numbers are those of the package `tinker_public` of the SDK. Only the messages that this
server reads or writes are declared. Arrays are bytes in little-endian order.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet

_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "tinker_public"
# Fields by message: name, number and type. `*` marks a repeated field, `?` an optional one, and
# `map:` a map from strings. Types that start with a capital letter are messages.
_MESSAGES = {
    "SparseCsr": "values 1 bytes, crow_indices 2 bytes, col_indices 3 bytes",
    "Tensor": "dense 1 ?bytes, sparse_csr 2 SparseCsr, dtype 3 int32, shape 4 *int64",
    "BatchedTensor": "data 1 bytes, offsets 2 bytes, dtype 3 int32, trailing_shape 4 *int64",
    "ArrayRecord": "type_tag 1 string, fields 2 map:BatchedTensor, num_datums 3 int64",
    "ForwardBackwardOutput": (
        "loss_fn_output_type 1 string, loss_fn_outputs 2 *ArrayRecord, metrics 3 map:double"
    ),
    "EncodedTextChunk": "tokens 1 bytes",
    # Images, audio and the origin of tokens are bytes, because their contents are not read.
    "Chunk": "encoded_text 1 EncodedTextChunk, image 2 ?bytes, dmel 3 ?bytes",
    "Datum": (
        "model_input 1 *Chunk, loss_fn_inputs 2 map:Tensor, model_input_spans 3 *bytes, "
        "loss_fn_input_spans 4 *bytes"
    ),
    "LossConfigValue": "number 1 ?double, text 2 ?string",
    "ForwardBackwardRequest": (
        "model_id 1 string, seq_id 2 int32, data 3 *Datum, loss_fn 4 string, "
        "loss_fn_config 5 map:double, forward_only 6 bool, loss_fn_config_v2 7 map:LossConfigValue"
    ),
    "SampledSequence": "stop_reason 1 int32, tokens 2 bytes, logprobs 3 ?bytes",
    "SampleResponse": "sequences 1 *SampledSequence, prompt_logprobs 2 ?bytes",
}
FLOAT32, INT64 = 1, 2  # values of `dtype`
STOP, LENGTH = 0, 1  # values of `stop_reason`


def _build() -> dict[str, Any]:
    """Returns the classes of all messages by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tinker_public.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split(", "):
            _add_field(message, *text.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


def _add_field(message: Any, name: str, number: str, kind: str) -> None:
    field = message.field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
    if kind.startswith("map:"):
        title = "".join(word.title() for word in name.split("_"))
        entry = message.nested_type.add(name=f"{title}Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", "1", "string")
        _add_field(entry, "value", "2", kind.removeprefix("map:"))
        field.label = _FIELD.LABEL_REPEATED
        _set_type(field, f"{message.name}.{entry.name}")
        return
    if kind.startswith("*"):
        field.label = _FIELD.LABEL_REPEATED
    elif kind.startswith("?"):
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    _set_type(field, kind.lstrip("*?"))


def _set_type(field: Any, kind: str) -> None:
    if kind[0].isupper():
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = getattr(_FIELD, f"TYPE_{kind.upper()}")


_CLASSES = _build()
ForwardBackwardRequest = _CLASSES["ForwardBackwardRequest"]
ForwardBackwardOutput = _CLASSES["ForwardBackwardOutput"]
SampleResponse = _CLASSES["SampleResponse"]


def unknown_fields(message: Any) -> list[int]:
    """Returns the numbers of fields of a parsed message that this wire does not have."""
    return sorted({field.field_number for field in UnknownFieldSet(message)})
