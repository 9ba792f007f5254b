"""OpenAI's JSON: checked requests, and the bodies of answers and errors."""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BeforeValidator, Field, WrapValidator

from agentgym_jax.serving.answer_forms import read_form
from agentgym_jax.serving.requests import (
    AnswerForm,
    Generation,
    RequestError,
    Sampling,
    answer_name,
)
from agentgym_jax.serving.tool_calls import parse_tool_calls
from agentgym_jax.text.tool_chat import ToolForm

MAX_CHOICES = 128
MAX_BIASES = 1024  # tokens of `logit_bias`; OpenAI allows 300
MAX_STOP = 16  # OpenAI allows 4; some clients send more
_MAX_STOP_LENGTH = 1024  # characters
_LOWEST_TEMPERATURE = 1e-4  # sampling below it is greedy, because logits would overflow
_LOWEST_TOP_P = 1e-6  # float32 keeps it above 0

Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]


# Fields of OpenAI and of other servers that would change the answer and are not supported, with the
# values that change nothing, besides null.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("top_a", "min_tokens"), (0,)),
    **dict.fromkeys(("length_penalty", "typical_p", "tfs_z", "best_of"), (1,)),
    **dict.fromkeys(("ignore_eos", "use_beam_search", "include_stop_str_in_output"), (False,)),
    **dict.fromkeys(("continue_final_message", "add_special_tokens", "echo"), (False,)),
    **dict.fromkeys(("skip_special_tokens", "no_stop_trim"), (False,)),
    **dict.fromkeys(("add_generation_prompt", "parallel_tool_calls", "detokenize"), (True,)),
    "chat_template_kwargs": ({},),
    **dict.fromkeys(("bad_words", "documents", "functions", "logits_processors"), ([],)),
    **dict.fromkeys(("json_schema", "regex", "ebnf", "grammar", "structural_tag"), ()),
    **dict.fromkeys(("allowed_token_ids", "chat_template", "truncate_prompt_tokens"), ()),
    **dict.fromkeys(("prompt_logprobs", "stop_regex", "mirostat"), (0, False)),
    **dict.fromkeys(("audio", "web_search_options", "thinking", "enable_thinking"), ()),
    **dict.fromkeys(("reasoning", "thinking_token_budget", "lora_path"), ()),
    "reasoning_effort": (),
    "verbosity": ("medium",),
    "modalities": (["text"],),
    "function_call": ("none", "auto"),
    "suffix": ("",),
}
# Fields that do not change the answer, or not with the values that are accepted. They need no warning
# in the server's log.
HARMLESS = frozenset(_UNSUPPORTED) | frozenset(
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention "
    "prediction request_id priority cache_salt rid spaces_between_special_tokens".split()
)
_UNSUPPORTED_IN_MESSAGES: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "function_call": (),
    "refusal": ("",),
}


class Body(pydantic.BaseModel):
    """JSON object; `refuse_unsupported` checks its unknown fields."""

    model_config = pydantic.ConfigDict(extra="allow")


def _refuse_unsupported(
    body: pydantic.BaseModel, table: Mapping[str, tuple[Any, ...]], place: str = ""
) -> None:
    """Raises RequestError for a field that would change the answer."""
    for name, value in (body.model_extra or {}).items():
        if name in table and value is not None and value not in table[name]:
            neutral = [json.dumps(entry) for entry in table[name]]
            remedy = f"leave it out, or set {' or '.join(neutral)}" if neutral else "leave it out"
            raise RequestError(f"{place}{name} is not supported; {remedy}", param=f"{place}{name}")


def _join_parts(content: Any) -> Any:
    """Converts the parts of a content to one text."""
    if not isinstance(content, list):
        return content
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text":
            raise ValueError(
                f"part {i} has the type {str(kind)[:50]!r}; this model reads texts only"
            )
        if not isinstance(part.get("text"), str):
            raise ValueError(f"part {i} has no text")
        texts.append(part["text"])
    return "".join(texts)


class _Function(Body):
    name: str = Field(min_length=1)
    arguments: str | dict[str, Any] | None = None


class _Call(Body):
    id: str = ""
    type: Literal["function"] = "function"
    function: _Function


class Message(Body):
    """Message of a chat request."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str | None, BeforeValidator(_join_parts)] = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # another name of the same field
    tool_calls: Annotated[list[_Call], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None

    def plain(self, number: int = 0) -> dict[str, Any]:
        """Returns message `number` for the chat template, with its text as one string."""
        place = f"messages.{number}."
        _refuse_unsupported(self, _UNSUPPORTED_IN_MESSAGES, place)
        role = "system" if self.role == "developer" else self.role
        if self.tool_calls and role != "assistant":
            raise RequestError(
                f"{place}tool_calls: only an assistant calls tools", param=f"{place}tool_calls"
            )
        message: dict[str, Any] = {"role": role, "content": self.content or ""}
        if reasoning := self.reasoning_content or self.reasoning:
            message["reasoning_content"] = reasoning
        if self.name is not None:
            message["name"] = self.name
        if self.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": call.type,
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
                for call in self.tool_calls
            ]
        if self.tool_call_id is not None and role == "tool":
            message["tool_call_id"] = self.tool_call_id
        return message


class _ToolFunction(Body):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(Body):
    type: Literal["function"]
    function: _ToolFunction


def _keep_checked(value: Any, check: pydantic.ValidatorFunctionWrapHandler) -> Any:
    """Returns a valid value as it was sent: templates write all fields, in their order."""
    check(value)
    return value


class _StreamOptions(Body):
    include_usage: bool = False


_Stop = Annotated[str, Field(min_length=1, max_length=_MAX_STOP_LENGTH)]


def _one_if_none(value: Any) -> Any:
    return 1 if value is None else value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_TokenKey = Annotated[int, Field(ge=0, lt=2**31)]
_Bias = Annotated[float, Field(ge=-100, le=100)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(fail_fast=True)]


class _Common(Body):
    """Fields of all requests that sample."""

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    stop: Annotated[
        Annotated[list[_Stop], Field(max_length=MAX_STOP, fail_fast=True)] | None,
        BeforeValidator(_as_list),
    ] = None
    stop_token_ids: TokenIds | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    logit_bias: Annotated[dict[_TokenKey, _Bias], Field(max_length=MAX_BIASES)] | None = None
    seed: Seed | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES), BeforeValidator(_one_if_none)] = 1
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    return_token_ids: bool | None = False
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    _answer: AnswerForm | None = None

    def check(self) -> None:
        """Raises RequestError for fields that are valid but not supported."""
        _refuse_unsupported(self, _UNSUPPORTED)
        self.read_answer()

    def read_answer(self, tools: Sequence[Any] = (), tool_choice: Any = None) -> None:
        """Reads the form of the answer; raises the errors of `read_form`."""
        self._answer = read_form(vars(self), tools, tool_choice)

    def sampling(self, number: int = 0, response_id: str = "") -> Sampling:
        """Returns the sampling parameters of choice `number` of a response."""
        stop = self.stop or []
        if any("\ufffd" in word for word in stop):
            raise RequestError(
                "stop has the character U+FFFD, which stands for incomplete characters; remove it",
                param="stop",
            )
        temperature, top_p = self.temperature, self.top_p
        if temperature is not None and temperature < _LOWEST_TEMPERATURE:
            temperature = 0.0
        return Sampling(
            temperature=temperature,
            top_k=None if self.top_k is None else max(0, self.top_k),  # -1 is off in vLLM
            top_p=None if top_p is None else max(top_p, _LOWEST_TOP_P),
            max_tokens=self.max_tokens,
            stop=tuple(stop),
            stop_ids=tuple(self.stop_token_ids or ()),
            seed=None if self.seed is None else self.seed + number,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            repetition_penalty=self.repetition_penalty,
            min_p=self.min_p,
            logit_bias=self.logit_bias,
            answer=self._answer,
            name=answer_name(response_id, number) if response_id else "",
        )


class ChatRequest(_Common):
    """Body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1)
    tools: (
        Annotated[list[Annotated[_Tool, WrapValidator(_keep_checked)]], Field(fail_fast=True)]
        | None
    ) = None
    tool_choice: Any = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = None

    def check(self) -> None:
        """Implements `_Common.check`."""
        super().check()
        if self.top_logprobs:
            raise RequestError(
                "top_logprobs is not supported; leave it out or set 0", param="top_logprobs"
            )
        self.read_answer(self.plain_tools(), self.tool_choice)
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise RequestError(
                f"max_completion_tokens={self.max_completion_tokens} and "
                f"max_tokens={self.max_tokens} contradict each other; give one of them",
                param="max_completion_tokens",
            )
        self.max_tokens = next(iter(limits), None)

    def plain_tools(self) -> list[dict[str, Any]]:
        """Returns the tool definitions as they were sent."""
        return list(self.tools or [])  # type: ignore[arg-type]  # `_keep_checked` has kept them

    @property
    def may_call(self) -> bool:
        """True if calls in the answer are tool calls, not text."""
        return bool(self.tools) and self.tool_choice != "none"


class CompletionRequest(_Common):
    """Body of `/v1/completions`."""

    prompt: (
        str
        | TokenIds
        | Annotated[list[str], Field(fail_fast=True)]
        | Annotated[list[TokenIds], Field(max_length=MAX_CHOICES, fail_fast=True)]
    )
    logprobs: Annotated[int, Field(ge=0)] | None = None
    echo: bool | None = False
    suffix: str | None = None

    def check(self) -> None:
        """Implements `_Common.check`."""
        super().check()
        if self.echo or self.suffix:
            name = "echo" if self.echo else "suffix"
            raise RequestError(f"{name} is not supported; leave it out", param=name)
        if (self.logprobs or 0) > 1:
            raise RequestError("logprobs above 1 is not supported; set 1", param="logprobs")
        if not self.prompt:
            raise RequestError("the prompt is empty; give at least one token", param="prompt")

    def prompts(self) -> list[str | list[int]]:
        """Returns one prompt per element of the list."""
        if isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int)):
            return [self.prompt]  # type: ignore[list-item]
        return list(self.prompt)  # type: ignore[arg-type]


class _GenerateSampling(_Common):
    logprobs: Annotated[int, Field(ge=0, le=1)] | None = None  # they are in every answer


class GenerateRequest(Body):
    """Body of `/inference/v1/generate`, vLLM's route with token ids in and out."""

    model: str | None = None
    token_ids: TokenIds = Field(min_length=1)
    sampling_params: _GenerateSampling = Field(default_factory=_GenerateSampling)
    stream: bool | None = False

    def check(self) -> None:
        """Raises RequestError for fields that are valid but not supported."""
        # The answer has no text.
        texts = ("skip_special_tokens", "detokenize", "include_stop_str_in_output")
        table = {name: neutral for name, neutral in _UNSUPPORTED.items() if name not in texts}
        _refuse_unsupported(self.sampling_params, table, "sampling_params.")
        _refuse_unsupported(self, table)
        self.sampling_params.read_answer()
        if self.stream or self.sampling_params.stream:
            raise RequestError("this route has no streams; leave stream out", param="stream")


def parse(kind: type[pydantic.BaseModel], body: bytes) -> Any:
    """Parses the body of a request; raises RequestError with the first wrong field."""
    try:
        return kind.model_validate_json(body)
    except pydantic.ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place, message = ".".join(str(part) for part in first["loc"]), first["msg"]
        if place.startswith("prompt."):  # of a union, all members have failed
            place, message = "prompt", "expected a text, token ids, or a list of either"
        message = f"{place}: {message}" if place else message
        raise RequestError(message[:500], "invalid_request", place or None) from None


def error_body(message: str, kind: str, code: str | None, param: str | None = None) -> dict:
    """Returns the body of an error answer."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Reply:
    """Builds the answers of one request; all have the same id, time and model."""

    def __init__(self, kind: str, model: str):
        prefix = {"chat.completion": "chatcmpl", "text_completion": "cmpl"}[kind]
        self.id = f"{prefix}-{uuid.uuid4().hex}"
        self._head = {
            "id": self.id,
            "created": int(time.time()),
            "model": model,
        }
        self._kind = kind

    def whole(
        self, choices: Sequence[Mapping[str, Any]], results: Sequence[Generation], n: int
    ) -> dict:
        """Returns the body of an answer that is not streamed, with `n` results per prompt."""
        body = {**self._head, "object": self._kind, "choices": list(choices)}
        return {**body, "usage": usage(results, n)}

    def chunk(self, choices: Sequence[Mapping[str, Any]], **fields: Any) -> str:
        """Returns one server-sent event."""
        kind = f"{self._kind}.chunk" if self._kind == "chat.completion" else self._kind
        body = {**self._head, "object": kind, "choices": list(choices), **fields}
        return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


def usage(results: Sequence[Generation], n: int) -> dict[str, int]:
    """Returns the token counts of all choices; the prompt of `n` choices counts once."""
    prompt = sum(len(result.prompt_ids) for result in results[::n])
    sampled = sum(len(result.token_ids) for result in results)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def token_logprobs(
    result: Generation, names: Sequence[str], parts: Sequence[bytes]
) -> dict[str, Any]:
    """Returns OpenAI's `logprobs` of a choice, given the texts and the bytes of its tokens."""
    return {
        "content": [
            {
                "token": name,
                "logprob": float(logprob),
                "bytes": list(part),
                "top_logprobs": [],
            }
            for name, part, logprob in zip(names, parts, result.logprobs, strict=True)
        ]
    }


def assistant_message(text: str, form: ToolForm | None, *, call_prefix: str) -> dict[str, Any]:
    """Returns the message of a choice, with tool calls of a form; None if there are no tools."""
    content, calls = (text, []) if form is None else parse_tool_calls(text, form)
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["content"] = content or None
        message["tool_calls"] = [
            {"id": f"call_{call_prefix}_{i}", "type": "function", "function": call}
            for i, call in enumerate(calls)
        ]
    return message


def openapi() -> dict[str, Any]:
    """Returns the OpenAPI description of the routes."""
    kinds = {
        "/v1/chat/completions": ChatRequest,
        "/v1/completions": CompletionRequest,
        "/inference/v1/generate": GenerateRequest,
    }
    paths: dict[str, Any] = {
        path: {"get": {"responses": {"200": {"description": "OK"}}}}
        for path in ("/health", "/v1/models")
    }
    schemas: dict[str, Any] = {}
    for path, kind in kinds.items():
        schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        paths[path] = {"post": {"requestBody": body, "responses": {"200": {"description": "OK"}}}}
    info = {"title": "agentgym_jax", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
