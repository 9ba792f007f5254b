"""Anthropic's Messages API: `/v1/messages` and `/v1/messages/count_tokens`."""

import json
import uuid
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentgym_jax.serving import replies, streams, wire
from agentgym_jax.serving.answer_parts import Parts
from agentgym_jax.serving.error_answers import messages_error
from agentgym_jax.serving.requests import Generation, OnTokens, Pending, RequestError, Sampling
from agentgym_jax.serving.service import Service
from agentgym_jax.serving.turns import Turns, get, get_text, make_tool

_TEXT = ("text",)
_SIGNATURE = "none"  # of thinking; some clients send thinking with an empty one back as text
_UNSUPPORTED: dict[str, tuple[Any, ...]] = wire.UNSUPPORTED | {
    **dict.fromkeys(("container", "max_completion_tokens", "max_output_tokens"), ()),
    **dict.fromkeys(("context_management", "output_config"), ({},)),
    **dict.fromkeys(("mcp_servers", "stop"), ([],)),
    "n": (1,),
    "output_format": (),
}


def _as_blocks(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _in_openai_form(choice: dict[str, Any]) -> Any:
    """Returns a `tool_choice` as chat completions have it."""
    match choice.get("type"):
        case "tool":
            return {"type": "function", "function": {"name": choice.get("name")}}
        case "any":
            return "required"
        case kind:
            return kind


class _Turn(wire.Body):
    role: Literal["user", "assistant"]
    content: Annotated[list[dict[str, Any]], Field(fail_fast=True), BeforeValidator(_as_blocks)]

    def add_to(self, turns: Turns, place: str) -> None:
        """Adds the blocks of the turn to a conversation."""
        if self.role == "assistant":
            self._add_answer(turns, place)
            return
        texts: list[str] = []
        for i, block in enumerate(self.content):
            at = f"{place}.content.{i}"
            if block.get("type") == "tool_result":
                if texts:
                    turns.add("user", "".join(texts))
                texts = []
                name = get(block, "tool_use_id", str, at)
                turns.add_result(name, get_text(block, "content", _TEXT, at))
            else:
                texts.append(get_text({"block": [block]}, "block", _TEXT, at))
        if texts or not self.content:
            turns.add("user", "".join(texts))

    def _add_answer(self, turns: Turns, place: str) -> None:
        turns.add_text("")  # an answer without blocks is an empty one
        for i, block in enumerate(self.content):
            at = f"{place}.content.{i}"
            match block.get("type"):
                case "tool_use":
                    arguments = get(block, "input", dict, at)
                    turns.add_call(
                        get(block, "id", str, at), get(block, "name", str, at), arguments
                    )
                case "thinking":
                    turns.add_thinking(get(block, "thinking", str, at))
                case _:
                    turns.add_text(get_text({"block": [block]}, "block", _TEXT, at))


class _Tool(wire.Body):
    name: str = Field(min_length=1)
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class CountRequest(wire.Sampled):
    """Body of `/v1/messages/count_tokens`."""

    messages: Annotated[list[_Turn], Field(fail_fast=True)] = Field(min_length=1)
    system: Annotated[str | None, BeforeValidator(wire.join_parts)] = None
    tools: Annotated[list[_Tool], Field(fail_fast=True)] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    stop_sequences: wire.StopTexts = None

    def check(self) -> None:
        """Raises RequestError for fields that are valid but not supported."""
        wire.refuse_unsupported(self, _UNSUPPORTED)
        choice = self.tool_choice or {"type": "auto"}
        if choice.get("disable_parallel_tool_use"):
            self.parallel_tool_calls = False
        self.constrain({}, self.plain_tools(), _in_openai_form(choice))
        if (self.thinking or {"type": "disabled"}).get("type") not in ("disabled", "adaptive"):
            raise RequestError(
                'thinking must be "disabled" or "adaptive"; its length cannot be set',
                param="thinking",
            )
        for i, tool in enumerate(self.tools or []):
            if tool.type not in (None, "custom"):
                raise RequestError(
                    f"tools.{i} has the type {tool.type[:50]!r}, which only Anthropic's servers "
                    'have; use the type "custom"',
                    param=f"tools.{i}.type",
                )

    def plain_messages(self) -> list[dict[str, Any]]:
        """Returns the messages in the form of chat completions."""
        turns = Turns()
        if self.system:
            turns.add("system", self.system)
        for i, turn in enumerate(self.messages):
            turn.add_to(turns, f"messages.{i}")
        return turns.messages()

    def plain_tools(self) -> list[dict[str, Any]]:
        """Returns the tools in the form of chat completions."""
        return [make_tool(t.name, t.description, t.input_schema) for t in self.tools or []]

    @property
    def may_call(self) -> bool:
        """True if calls in the answer are tool calls, not text."""
        return bool(self.tools) and (self.tool_choice or {}).get("type") != "none"


class MessagesRequest(CountRequest):
    """Body of `/v1/messages`."""

    max_tokens: wire.MaxTokens

    def sampling(self, response_id: str) -> Sampling:
        """Returns the sampling parameters."""
        return self.make_sampling(
            self.max_tokens, self.stop_sequences, 0, response_id, stop_field="stop_sequences"
        )


class MessagesApi:
    """Handlers of the routes."""

    def __init__(self, service: Service):
        self._service = service

    async def create(self, request: Request) -> Response:
        """Answers `/v1/messages`."""
        service = self._service
        chat, body, messages, tools = await service.read_chat(request, MessagesRequest)
        reply = _Reply(body, service)

        def submit(number: int, on_tokens: OnTokens | None) -> Pending:
            return chat.submit_chat(messages, tools, body.sampling(reply.id), on_tokens)

        if body.stream:
            return await service.stream(request, submit, 1, _MessageFormat(reply, service))
        (result,) = await service.wait(request, submit, 1)
        return await service.run(lambda: JSONResponse(reply.whole(result)))

    async def count(self, request: Request) -> Response:
        """Answers `/v1/messages/count_tokens`."""
        chat, _, messages, tools = await self._service.read_chat(request, CountRequest)
        count = await self._service.run(chat.count_tokens, messages, tools)
        return JSONResponse({"input_tokens": count})


class _Reply:
    """Builds the answer of one request."""

    def __init__(self, body: MessagesRequest, service: Service):
        self.id = f"msg_{uuid.uuid4().hex}"
        self.body = body
        self.form = service.backend.answer_form.for_tools(body.plain_tools())
        self._model = service.backend.model_name

    def read(self, result: Generation) -> Parts:
        """Returns the parts of an answer."""
        return self.form.read(result.text, has_tools=self.body.may_call)

    def message(self, content: list[Any], usage: dict[str, int], **fields: Any) -> dict[str, Any]:
        """Returns a message; `fields` are those of its end."""
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
            **fields,
        }

    def whole(self, result: Generation) -> dict[str, Any]:
        """Returns the whole message of an answer."""
        parts = self.read(result)
        content: list[dict[str, Any]] = []
        if parts.thinking:
            content.append(
                {"type": "thinking", "thinking": parts.thinking, "signature": _SIGNATURE}
            )
        if parts.text or not (content or parts.calls):  # programs expect at least one block
            content.append({"type": "text", "text": parts.text})
        for block, arguments in self.calls(parts, result):
            content.append({**block, "input": json.loads(arguments)})
        fields = self.end(parts, result) | self.body.ids(result)
        return self.message(content, _usage(len(result.prompt_ids), result), **fields)

    def calls(self, parts: Parts, result: Generation) -> list[tuple[dict[str, Any], str]]:
        """Returns the blocks of the tool calls without their input, and their input as JSON."""
        ids = replies.call_ids(result, 0, parts.calls)
        return [
            (
                {"type": "tool_use", "id": f"toolu_{end}", "name": call["name"], "input": {}},
                call["arguments"],
            )
            for end, call in zip(ids, parts.calls, strict=True)
        ]

    def end(self, parts: Parts, result: Generation) -> dict[str, Any]:
        """Returns the reason why an answer has ended."""
        reason = "stop_sequence" if result.stop else "end_turn"
        if result.finish_reason == "length":
            reason = "max_tokens"
        reason = "tool_use" if parts.calls else reason
        return {"stop_reason": reason, "stop_sequence": result.stop or None}


class _MessageFormat(streams.Format):
    """Events of `/v1/messages`."""

    def __init__(self, reply: _Reply, service: Service):
        super().__init__(
            service.backend.tokenizer.decode,
            reply.form,
            has_tools=reply.body.may_call,
            stop=reply.body.sampling("").stop,
        )
        self._reply = reply
        self._open = ""  # kind of the open block
        self._index = 0  # of the open block, or of the next one

    def begin(self, number: int) -> list[str]:
        """Implements `Format.begin`."""
        message = self._reply.message([], _usage(self.num_prompt, None))
        return [streams.named_event({"type": "message_start", "message": message})]

    def end(self, number: int, result: Generation) -> list[str]:
        """Implements `Format.end`."""
        parts = self._reply.read(result)
        found = self._write_news(number, parts.thinking, parts.text)
        if not (self._open or self._index or parts.calls):
            found += self._start("text", {"type": "text", "text": ""})
        found += self._finish()
        for block, arguments in self._reply.calls(parts, result):
            found += self._start("tool_use", block)
            found += [self._delta("input_json", partial_json=arguments), *self._finish()]
        end = {
            "type": "message_delta",
            "delta": self._reply.end(parts, result),
            "usage": _usage(len(result.prompt_ids), result),
            **self._reply.body.ids(result),
        }
        return [*found, streams.named_event(end), streams.named_event({"type": "message_stop"})]

    def fail(self, message: str) -> str:
        """Implements `Format.fail`."""
        return streams.named_event(messages_error(message, 500))

    def _write(self, number: int, kind: str, text: str) -> list[str]:
        block = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
        started = [] if self._open == kind else [*self._finish(), *self._start(kind, block)]
        return [*started, self._delta(kind, **{kind: text})]

    def _start(self, kind: str, block: dict[str, Any]) -> list[str]:
        self._open = kind
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        ping = [] if self._index else [streams.named_event({"type": "ping"})]
        return [streams.named_event(start), *ping]

    def _delta(self, kind: str, **fields: str) -> str:
        delta = {"type": f"{kind}_delta", **fields}
        return streams.named_event(
            {"type": "content_block_delta", "index": self._index, "delta": delta}
        )

    def _finish(self) -> list[str]:
        """Returns the events at the end of the open block, if there is one."""
        if not self._open:
            return []
        signed = (
            [self._delta("signature", signature=_SIGNATURE)] if self._open == "thinking" else []
        )
        stop = streams.named_event({"type": "content_block_stop", "index": self._index})
        self._open, self._index = "", self._index + 1
        return [*signed, stop]


def _usage(num_prompt: int, result: Generation | None) -> dict[str, int]:
    """Returns the numbers of tokens; no result is the beginning of a stream."""
    return {
        "input_tokens": num_prompt,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0 if result is None else len(result.token_ids),
    }
