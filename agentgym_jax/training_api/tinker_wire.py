"""Requests of Tinker's wire, checked: JSON bodies, and the protobuf body of forward_backward."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from google.protobuf.message import DecodeError
from pydantic import Field

from agentgym_jax.serving import wire as serving_wire
from agentgym_jax.serving.requests import RequestError
from agentgym_jax.training_api import messages
from agentgym_jax.training_api.data import Datum

SDK = "0.38"  # version of the SDK whose wire this server speaks
REMEDY = f"this server speaks the wire of tinker {SDK}: pip install 'tinker=={SDK}.*'"
MAX_SAMPLES = 1024  # answers of one asample call
MAX_RANK = 1024
_MAX_TEXT = 4096  # characters of a name or path
_DTYPES: Mapping[int, np.dtype] = {
    messages.FLOAT32: np.dtype("<f4"),
    messages.INT64: np.dtype("<i8"),
}

Text = Annotated[str, Field(max_length=_MAX_TEXT)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Anything = Any  # fields that have no effect on this server


class Request(pydantic.BaseModel):
    """JSON object of the SDK, with no fields but those of its version."""

    model_config = pydantic.ConfigDict(extra="forbid", protected_namespaces=())
    type: Text = ""


class SessionRequest(Request):
    """Body of create_session."""

    tags: list[Text] = []
    user_metadata: Anything = None
    sdk_version: Text
    project_id: Text | None = None
    display_name: Text | None = None


class HeartbeatRequest(Request):
    """Body of session_heartbeat."""

    session_id: Text


class LoraConfig(Request):
    """Adapters of a model. The unembedding is never adapted here, so `train_unembed` has no effect."""

    rank: Annotated[int, Field(ge=1, le=MAX_RANK)]
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class OptimizerConfig(Request):
    """Optimiser of a model; only AdamW is supported."""

    type: Literal["adamw"] = "adamw"


class CreateModelRequest(Request):
    """Body of create_model."""

    session_id: Text
    model_seq_id: Count
    base_model: Text
    user_metadata: Anything = None
    lora_config: LoraConfig | None = None
    optimizer_config: OptimizerConfig = OptimizerConfig()


class ModelRequest(Request):
    """Body of get_info and unload_model, and the model of other calls."""

    model_id: Text


class CallRequest(ModelRequest):
    """Fields of every call of a model in training."""

    seq_id: Count | None = None


class AdamParams(Request):
    """Options of one optimiser step."""

    model_config = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False)
    learning_rate: Annotated[float, Field(ge=0)] = 1e-4
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    eps: Annotated[float, Field(gt=0)] = 1e-12
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    grad_clip_norm: Annotated[float, Field(ge=0)] = 0.0


class OptimStepRequest(CallRequest):
    """Body of optim_step."""

    adam_params: AdamParams


class SaveRequest(CallRequest):
    """Body of save_weights."""

    path: Text
    ttl_seconds: Anything = None
    overwrite: bool = False
    user_metadata: Anything = None


class SaveForSamplerRequest(CallRequest):
    """Body of save_weights_for_sampler: a name, or the number of a new sampling session."""

    path: Text | None = None
    sampling_session_seq_id: Count | None = None
    kind: Literal["snapshot", "inflight"] = "snapshot"
    ttl_seconds: Anything = None
    user_metadata: Anything = None


class LoadRequest(Request):
    """Body of load_weights: into a model, or as a new model of a session."""

    model_id: Text | None = None
    seq_id: Count | None = None
    session_id: Text | None = None
    model_seq_id: Count | None = None
    base_model: Text | None = None
    user_metadata: Anything = None
    path: Text
    optimizer: bool
    optimizer_config: OptimizerConfig | None = None
    weights_access_token: Text | None = None


class SamplingSessionRequest(Request):
    """Body of create_sampling_session."""

    session_id: Text
    sampling_session_seq_id: Count
    base_model: Text | None = None
    model_path: Text | None = None


class _TextChunk(Request):
    tokens: list[Count]
    type: Literal["encoded_text"] = "encoded_text"


class _ModelInput(Request):
    chunks: list[_TextChunk]


class SamplingParams(Request):
    """Sampling parameters."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Text | list[Count] | list[Text] | None = None
    temperature: Annotated[float, Field(ge=0, le=1000)] = 1.0
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] = -1
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0


class SampleRequest(Request):
    """Body of asample."""

    num_samples: Annotated[int, Field(ge=1, le=MAX_SAMPLES)] = 1
    prompt: _ModelInput
    sampling_params: SamplingParams
    base_model: Text | None = None
    model_path: Text | None = None
    sampling_session_id: Text | None = None
    seq_id: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    prompt_logprobs: bool | None = None
    prompt_logprobs_last_n: Annotated[int, Field(ge=1)] | None = None
    topk_prompt_logprobs: Literal[0] = 0
    topk_sample_logprobs: Literal[0] = 0
    target_prompt_logprobs: None = None
    prompt_alt_tokens_k: Literal[0] = 0
    record_stability_info: Literal[False] | None = None

    @property
    def tokens(self) -> list[int]:
        """Returns the token ids of the prompt."""
        return [token for chunk in self.prompt.chunks for token in chunk.tokens]


class RetrieveRequest(Request):
    """Body of retrieve_future."""

    request_id: Text
    allow_metadata_only: bool = False


class CancelRequest(Request):
    """Body of cancel_future."""

    request_id: Text


class PathRequest(Request):
    """Body of weights_info."""

    tinker_path: Text


def parse(kind: type[Request], body: bytes) -> Any:
    """Parses a JSON body.

    Raises:
      RequestError: A field is wrong, or is not part of the wire; the message names the remedy.
    """
    try:
        return serving_wire.parse(kind, body)
    except RequestError as error:
        if "Extra inputs" not in str(error):
            raise
        message = f"{error.param}: an unknown field; {REMEDY}"
        raise RequestError(message, "unknown_field", error.param) from None


def read_message(body: bytes) -> Any:
    """Parses the protobuf body of forward_backward; raises RequestError if it is none."""
    try:
        return messages.ForwardBackwardRequest.FromString(body)
    except DecodeError:
        raise RequestError(
            f"the body is no ForwardBackwardRequest; {REMEDY}", "invalid_request"
        ) from None


def read_number(body: bytes) -> tuple[Any, int | None]:
    """Returns the model and the number of a call whose JSON body may be wrong; None without one."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None, None
    fields = fields if isinstance(fields, dict) else {}
    number = fields.get("seq_id")
    return fields.get("model_id"), number if type(number) is int else None


class ForwardBackward:
    """Checked body of forward_backward.

    Attributes:
      model_id, seq_id: Model and number of the call.
      loss_fn, options: Name of the loss and its options.
      forward_only: True if no gradient is added.
      data: Sequences with the inputs of the loss.
    """

    def __init__(self, message: Any):
        """Checks a message of `read_message`; raises RequestError if it is wrong."""
        _refuse_unknown(message, "the request")
        self.model_id, self.seq_id = message.model_id, message.seq_id
        self.loss_fn, self.forward_only = message.loss_fn, message.forward_only
        self.options: dict[str, float | str] = dict(message.loss_fn_config)
        for name, value in message.loss_fn_config_v2.items():
            self.options[name] = value.text if value.HasField("text") else value.number
        self.data = [_read_datum(datum, i) for i, datum in enumerate(message.data)]
        if not self.data:
            raise RequestError("the request has no data; send at least one datum", param="data")


def _refuse_unknown(message: Any, place: str) -> None:
    if numbers := messages.unknown_fields(message):
        raise RequestError(f"{place} has the unknown field {numbers[0]}; {REMEDY}", "unknown_field")


def _read_datum(message: Any, number: int) -> Datum:
    place = f"datum {number}"
    _refuse_unknown(message, place)
    parts = []
    for chunk in message.model_input:
        if not chunk.HasField("encoded_text"):
            raise RequestError(f"{place} has a chunk that is no text; this model reads texts only")
        parts.append(_array(chunk.encoded_text.tokens, np.dtype("<i4"), place))
    tokens = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    fields = {
        name: _read_tensor(value, len(tokens), f"{place}, {name}")
        for name, value in message.loss_fn_inputs.items()
    }
    return Datum(tokens.astype(np.int32), fields)


def _read_tensor(message: Any, length: int, place: str) -> np.ndarray:
    """Returns an array with one value per token of the datum."""
    if message.HasField("sparse_csr") or len(message.shape) > 1:
        raise RequestError(
            f"{place} has several values per token; this server scores one target per token"
        )
    if message.dtype not in _DTYPES:
        raise RequestError(f"{place} has the unknown type {message.dtype}; {REMEDY}")
    values = _array(message.dense, _DTYPES[message.dtype], place)
    if len(values) != length or list(message.shape) not in ([], [length]):
        raise RequestError(
            f"{place} has {len(values)} values for {length} tokens; give one value per token"
        )
    return values


def _array(data: bytes, dtype: np.dtype, place: str) -> np.ndarray:
    if len(data) % dtype.itemsize:
        raise RequestError(
            f"{place}: {len(data)} bytes are no array of {dtype.itemsize} bytes each"
        )
    return np.frombuffer(data, dtype)


def forward_backward_output(logprobs: Sequence[np.ndarray], metrics: Mapping[str, float]) -> bytes:
    """Returns the protobuf result of forward_backward with the log-probabilities of each datum."""
    sizes = [4 * len(values) for values in logprobs]
    message = messages.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord", metrics=dict(metrics)
    )
    record = message.loss_fn_outputs.add(type_tag="ArrayRecord", num_datums=len(logprobs))
    field = record.fields["logprobs"]
    field.data = np.concatenate(logprobs).astype("<f4").tobytes()
    field.offsets = np.cumsum([0, *sizes]).astype("<i8").tobytes()
    field.dtype = messages.FLOAT32
    return message.SerializeToString()


def sample_response(
    answers: Sequence[tuple[np.ndarray, np.ndarray, bool]], prompt: np.ndarray | None
) -> bytes:
    """Returns the protobuf result of asample.

    Args:
      answers: Sampled tokens, their log-probabilities, and True if a stop ended them.
      prompt: Log-probabilities of the prompt, NaN for missing ones; None if not requested.
    """
    message = messages.SampleResponse()
    for tokens, logprobs, is_stopped in answers:
        message.sequences.add(
            stop_reason=messages.STOP if is_stopped else messages.LENGTH,
            tokens=tokens.astype("<i4").tobytes(),
            logprobs=logprobs.astype("<f4").tobytes(),
        )
    if prompt is not None:
        message.prompt_logprobs = prompt.astype("<f4").tobytes()
    return message.SerializeToString()
