"""OpenAI's JSON: checked requests."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BeforeValidator, Field, WrapValidator

from agentgym_jax.serving.constraints import read_constraint
from agentgym_jax.serving.requests import (
    Constraint,
    Generation,
    RequestError,
    Sampling,
    answer_name,
)

MAX_CHOICES = 128
MAX_BIASES = 1024  # tokens of `logit_bias`; OpenAI allows 300
MAX_STOP = 16  # OpenAI allows 4; some clients send more
_MAX_STOP_LENGTH = 1024  # characters

Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]


# Fields of OpenAI and of other servers that would change the answer and are not supported, with the
# values that change nothing, besides null.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("top_a", "min_tokens"), (0,)),
    **dict.fromkeys(("length_penalty", "typical_p", "tfs_z", "best_of"), (1,)),
    **dict.fromkeys(("ignore_eos", "use_beam_search", "include_stop_str_in_output"), (False,)),
    **dict.fromkeys(("continue_final_message", "add_special_tokens", "echo"), (False,)),
    **dict.fromkeys(("skip_special_tokens", "no_stop_trim"), (False,)),
    **dict.fromkeys(("add_generation_prompt", "detokenize"), (True,)),
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
# Fields of OpenAI's completions that the other APIs do not have.
OPENAI_ONLY: dict[str, tuple[Any, ...]] = dict.fromkeys(
    ("response_format", "structured_outputs", "guided_json", "guided_regex")
    + ("guided_choice", "guided_grammar", "max_completion_tokens"),
    (),
)
# Fields that do not change the answer, or not with the values that are accepted. They need no warning
# in the server's log.
HARMLESS = frozenset(UNSUPPORTED) | frozenset(
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention "
    "prediction request_id priority cache_salt rid spaces_between_special_tokens "
    "cache_control inference_geo speed include prompt_cache_options max_tool_calls".split()
)
_UNSUPPORTED_IN_MESSAGES: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "function_call": (),
    "refusal": ("",),
}


class Body(pydantic.BaseModel):
    """JSON object; `refuse_unsupported` checks its unknown fields."""

    model_config = pydantic.ConfigDict(extra="allow")


def refuse_unsupported(
    body: pydantic.BaseModel, table: Mapping[str, tuple[Any, ...]], place: str = ""
) -> None:
    """Raises RequestError for a field that would change the answer."""
    for name, value in (body.model_extra or {}).items():
        if name in table and value is not None and value not in table[name]:
            neutral = [json.dumps(entry) for entry in table[name]]
            remedy = f"leave it out, or set {' or '.join(neutral)}" if neutral else "leave it out"
            raise RequestError(f"{place}{name} is not supported; {remedy}", param=f"{place}{name}")


def join_parts(content: Any, kinds: tuple[str, ...] = ("text",)) -> Any:
    """Converts the parts of a content to one text; raises ValueError for parts of other kinds."""
    if not isinstance(content, list):
        return content
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind not in kinds:
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
    content: Annotated[str | None, BeforeValidator(join_parts)] = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # another name of the same field
    tool_calls: Annotated[list[_Call], Field(fail_fast=True)] | None = None
    tool_call_id: str | None = None

    def plain(self, number: int = 0) -> dict[str, Any]:
        """Returns message `number` for the chat template, with its text as one string."""
        place = f"messages.{number}."
        refuse_unsupported(self, _UNSUPPORTED_IN_MESSAGES, place)
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


MaxTokens = Annotated[int, Field(ge=1, lt=2**31)]
StopTexts = Annotated[
    Annotated[list[_Stop], Field(max_length=MAX_STOP, fail_fast=True)] | None,
    BeforeValidator(_as_list),
]


class Sampled(Body):
    """Fields of the requests of all APIs."""

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    stop_token_ids: TokenIds | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    logit_bias: Annotated[dict[_TokenKey, _Bias], Field(max_length=MAX_BIASES)] | None = None
    seed: Seed | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = False
    return_token_ids: bool | None = False
    _constraint: Constraint | None = None

    def constrain(
        self,
        given: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: Any = None,
    ) -> None:
        """Reads the form of the answer; the arguments and errors are those of `read_constraint`."""
        self._constraint = read_constraint(
            given, tools, tool_choice, is_parallel=self.parallel_tool_calls is not False
        )

    def make_sampling(
        self,
        max_tokens: int | None,
        stop: Sequence[str] | None,
        number: int = 0,
        response_id: str = "",
        *,
        stop_field: str = "stop",
    ) -> Sampling:
        """Returns the sampling parameters of choice `number` of a response."""
        stop = stop or []
        if any("\ufffd" in word for word in stop):
            raise RequestError(
                f"{stop_field} has the character U+FFFD, which stands for incomplete characters; "
                "remove it",
                param=stop_field,
            )
        return Sampling(
            temperature=self.temperature,
            top_k=None if self.top_k is None else max(0, self.top_k),  # -1 is off in vLLM
            top_p=self.top_p,
            max_tokens=max_tokens,
            stop=tuple(stop),
            stop_ids=tuple(self.stop_token_ids or ()),
            seed=None if self.seed is None else self.seed + number,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            repetition_penalty=self.repetition_penalty,
            min_p=self.min_p,
            logit_bias=self.logit_bias,
            constraint=self._constraint,
            name=answer_name(response_id, number) if response_id else "",
        )

    def ids(self, result: Generation) -> dict[str, Any]:
        """Returns the fields with token ids, if the request asks for them."""
        if not self.return_token_ids:
            return {}
        return {
            "prompt_token_ids": result.prompt_ids.tolist(),
            "token_ids": result.token_ids.tolist(),
        }


class _Common(Sampled):
    """Fields of OpenAI's requests that sample."""

    max_tokens: MaxTokens | None = None
    stop: StopTexts = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES), BeforeValidator(_one_if_none)] = 1
    stream_options: _StreamOptions | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    def check(self) -> None:
        """Raises RequestError for fields that are valid but not supported."""
        refuse_unsupported(self, UNSUPPORTED)

    def sampling(self, number: int = 0, response_id: str = "") -> Sampling:
        """Returns the sampling parameters of choice `number` of a response."""
        return self.make_sampling(self.max_tokens, self.stop, number, response_id)


class ChatRequest(_Common):
    """Body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Field(fail_fast=True)] = Field(min_length=1)
    tools: (
        Annotated[list[Annotated[_Tool, WrapValidator(_keep_checked)]], Field(fail_fast=True)]
        | None
    ) = None
    tool_choice: Any = None
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = None

    def check(self) -> None:
        """Implements `_Common.check`."""
        super().check()
        if self.top_logprobs:
            raise RequestError(
                "top_logprobs is not supported; leave it out or set 0", param="top_logprobs"
            )
        self.constrain(vars(self), self.plain_tools(), self.tool_choice)
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise RequestError(
                f"max_completion_tokens={self.max_completion_tokens} and "
                f"max_tokens={self.max_tokens} contradict each other; give one of them",
                param="max_completion_tokens",
            )
        self.max_tokens = next(iter(limits), None)

    def plain_messages(self) -> list[dict[str, Any]]:
        """Returns the messages for the chat template."""
        return [message.plain(i) for i, message in enumerate(self.messages)]

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
    max_tokens: Annotated[int, Field(ge=0, lt=2**31)] | None = None  # 0 scores the prompt
    logprobs: Annotated[int, Field(ge=0)] | None = None
    echo: bool | None = False
    suffix: str | None = None

    def check(self) -> None:
        """Implements `_Common.check`."""
        super().check()
        self.constrain(vars(self))
        if self.suffix:
            raise RequestError("suffix is not supported; leave it out", param="suffix")
        if self.max_tokens == 0 and not self.echo:
            raise RequestError("max_tokens=0 needs echo=true", param="max_tokens")
        if self.echo and self.stream:
            raise RequestError("echo has no streams; leave stream out", param="echo")
        if (self.logprobs or 0) > 1:
            raise RequestError("logprobs above 1 is not supported; set 1", param="logprobs")
        if not self.prompt:
            raise RequestError("prompt is empty; give at least one token", param="prompt")

    def prompts(self) -> list[str | list[int]]:
        """Returns one prompt per element of the list."""
        if isinstance(self.prompt, str) or (self.prompt and isinstance(self.prompt[0], int)):
            return [self.prompt]
        return list(self.prompt)  # type: ignore[arg-type]  # token ids were returned above


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
        table = {name: neutral for name, neutral in UNSUPPORTED.items() if name not in texts}
        refuse_unsupported(self.sampling_params, table, "sampling_params.")
        refuse_unsupported(self, table)
        self.sampling_params.constrain(vars(self.sampling_params))
        if self.stream or self.sampling_params.stream:
            raise RequestError("this route has no streams; leave stream out", param="stream")


def parse(kind: type[pydantic.BaseModel], body: bytes) -> Any:
    """Parses the body of a request; raises RequestError with the first wrong field."""
    try:
        return kind.model_validate_json(body)
    except pydantic.ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place, message = (
            ".".join(str(part) for part in first["loc"]),
            first["msg"].removeprefix("Value error, "),
        )
        if place.startswith("prompt."):  # of a union, all members have failed
            place, message = "prompt", "expected a text, token ids, or a list of either"
        message = f"{place}: {message}" if place else message
        raise RequestError(message[:500], "invalid_request", place or None) from None
