"""OpenAI's Responses API: `/v1/responses`."""

import time
import uuid
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentgym_jax.serving import replies, streams, wire
from agentgym_jax.serving.answer_parts import Parts
from agentgym_jax.serving.requests import Generation, OnTokens, Pending, RequestError, Sampling
from agentgym_jax.serving.service import Service
from agentgym_jax.serving.turns import Turns, get, get_text, make_tool

_TEXT = ("input_text", "output_text", "text")
_UNSUPPORTED: dict[str, tuple[Any, ...]] = wire.UNSUPPORTED | {
    **dict.fromkeys(("previous_response_id", "conversation", "prompt", "moderation"), ()),
    **wire.OPENAI_ONLY,
    **dict.fromkeys(("max_tokens", "messages"), ()),
    **dict.fromkeys(("context_management", "stop"), ([],)),
    "background": (False,),
    "n": (1,),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
_LOGPROBS = "message.output_text.logprobs"
# Kinds of output by the kinds of text in a stream.
_KINDS = {"thinking": "reasoning", "text": "message"}


def _as_items(items: Any) -> Any:
    return [{"role": "user", "content": items}] if isinstance(items, str) else items


def _add_item(turns: Turns, item: dict[str, Any], place: str) -> None:
    """Adds an item of the input to a conversation."""
    match item.get("type") or "message":
        case "message":
            _add_message(turns, item, place)
        case "function_call":
            arguments = item.get("arguments")
            if not isinstance(arguments, dict):
                arguments = get(item, "arguments", str, place)
            name = get(item, "name", str, place)
            turns.add_call(get(item, "call_id", str, place), name, arguments)
        case "function_call_output":
            name = get(item, "call_id", str, place)
            turns.add_result(name, get_text(item, "output", _TEXT, place))
        case "reasoning":
            turns.add_thinking(get_text(item, "content", ("reasoning_text",), place))
            if item.get("encrypted_content") and not item.get("content"):
                raise RequestError(
                    f"{place}.encrypted_content is that of another server; leave the item out",
                    param=f"{place}.encrypted_content",
                )
        case kind:
            raise RequestError(
                f"{place} has the type {str(kind)[:50]!r}, which is not supported; give messages, "
                "function calls, their outputs and reasoning",
                param=f"{place}.type",
            )


def _add_message(turns: Turns, item: dict[str, Any], place: str) -> None:
    role, text = item.get("role"), get_text(item, "content", _TEXT, place)
    if role == "assistant":
        turns.add_text(text)
    elif role in ("user", "system", "developer"):
        turns.add("user" if role == "user" else "system", text)
    else:
        raise RequestError(
            f"{place}.role must be user, assistant, system or developer", param=f"{place}.role"
        )


class _Tool(wire.Body):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ResponsesRequest(wire.Sampled):
    """Body of `/v1/responses`."""

    input: Annotated[
        list[dict[str, Any]], Field(min_length=1, fail_fast=True), BeforeValidator(_as_items)
    ]
    instructions: str | None = None
    max_output_tokens: wire.MaxTokens | None = None
    tools: Annotated[list[_Tool], Field(fail_fast=True)] | None = None
    tool_choice: Any = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[Any] | None = None

    def check(self) -> None:
        """Raises RequestError for fields that are valid but not supported."""
        wire.refuse_unsupported(self, _UNSUPPORTED)
        self._constrain()
        if (self.text or {}).get("verbosity") not in (None, "medium"):
            raise RequestError("text.verbosity is not supported; leave it out", param="text")
        if (self.reasoning or {}).get("effort") is not None:
            raise RequestError("reasoning.effort is not supported; leave it out", param="reasoning")
        if _LOGPROBS in (self.include or []):
            raise RequestError(f"include: {_LOGPROBS} is not supported", param="include")
        for i, tool in enumerate(self.tools or []):
            if tool.type != "function" or not tool.name:
                raise RequestError(
                    f'tools.{i} must have the type "function" and a name', param=f"tools.{i}.type"
                )

    def _constrain(self) -> None:
        """Reads the form of the answer from `text.format` and `tool_choice`."""
        wanted, choice = (self.text or {}).get("format"), self.tool_choice
        if not isinstance(wanted, dict | None):
            raise RequestError("text.format must be an object with a type", param="text")
        if wanted is not None and wanted.get("type") == "json_schema":
            wanted = {"type": "json_schema", "json_schema": wanted}
        if isinstance(choice, dict) and choice.get("type") == "function":
            choice = {"type": "function", "function": {"name": choice.get("name")}}
        try:
            self.constrain({"response_format": wanted}, self.plain_tools(), choice)
        except RequestError as error:
            if error.param != "response_format":
                raise
            raise RequestError(f"text.format: {error}", param="text") from error

    def plain_messages(self) -> list[dict[str, Any]]:
        """Returns the messages in the form of chat completions."""
        turns = Turns()
        if self.instructions:
            turns.add("system", self.instructions)
        for i, item in enumerate(self.input):
            _add_item(turns, item, f"input.{i}")
        return turns.messages()

    def plain_tools(self) -> list[dict[str, Any]]:
        """Returns the tools in the form of chat completions."""
        return [make_tool(t.name or "", t.description, t.parameters) for t in self.tools or []]

    @property
    def may_call(self) -> bool:
        """True if calls in the answer are tool calls, not text."""
        return bool(self.tools) and self.tool_choice != "none"

    def sampling(self, response_id: str) -> Sampling:
        """Returns the sampling parameters."""
        return self.make_sampling(self.max_output_tokens, (), 0, response_id)


class ResponsesApi:
    """Handler of the route."""

    def __init__(self, service: Service):
        self._service = service

    async def create(self, request: Request) -> Response:
        """Answers `/v1/responses`."""
        service = self._service
        chat, body, messages, tools = await service.read_chat(request, ResponsesRequest)
        reply = _Reply(body, service)

        def submit(number: int, on_tokens: OnTokens | None) -> Pending:
            try:
                return chat.submit_chat(messages, tools, body.sampling(reply.id), on_tokens)
            except RequestError as error:
                error.param = "input" if error.param == "messages" else error.param
                raise

        if body.stream:
            return await service.stream(request, submit, 1, _ResponseFormat(reply, service))
        (result,) = await service.wait(request, submit, 1)
        return await service.run(lambda: JSONResponse(reply.whole(result)))


class _Reply:
    """Builds the answer of one request."""

    def __init__(self, body: ResponsesRequest, service: Service):
        self._hex = uuid.uuid4().hex
        self.id = f"resp_{self._hex}"
        self.body = body
        self.form = service.backend.answer_form.for_tools(body.plain_tools())
        self._created = int(time.time())
        self._model = service.backend.model_name

    def read(self, result: Generation) -> Parts:
        """Returns the parts of an answer."""
        return self.form.read(result.text, has_tools=self.body.may_call)

    def response(self, status: str, output: list[Any], **fields: Any) -> dict[str, Any]:
        """Returns a response; `fields` are those of its end."""
        body = self.body
        tools = [tool.model_dump(exclude_unset=True) for tool in body.tools or []]
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": {},
            "model": self._model,
            "output": output,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": body.temperature,
            "text": {"format": (body.text or {}).get("format") or {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": tools,
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": None,
            **fields,
        }

    def whole(self, result: Generation) -> dict[str, Any]:
        """Returns the whole response of an answer."""
        parts, status = self.read(result), self.status(result)
        output = []
        if parts.thinking:
            output.append(self.item("reasoning", parts.thinking, "completed"))
        if parts.text or not (output or parts.calls):  # an empty answer can be sent back, too
            output.append(self.item("message", parts.text, status))
        output += self.calls(parts, result)
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return self.response(
            status,
            output,
            incomplete_details=details,
            usage=_usage(result),
            **self.body.ids(result),
        )

    def status(self, result: Generation) -> str:
        """Returns the status of a response with a result."""
        return "incomplete" if result.finish_reason == "length" else "completed"

    def item(self, kind: str, text: str | None, status: str) -> dict[str, Any]:
        """Returns an item of the output, a message or reasoning; without text it has no content."""
        content = [] if text is None else [_part(kind, text)]
        if kind == "reasoning":
            fields: dict[str, Any] = {"id": f"rs_{self._hex}", "summary": []}
            fields["encrypted_content"] = None
        else:
            fields = {"id": f"msg_{self._hex}", "role": "assistant"}
        return {"type": kind, **fields, "content": content, "status": status}

    def calls(self, parts: Parts, result: Generation) -> list[dict[str, Any]]:
        """Returns the items of the tool calls."""
        ids = replies.call_ids(result, 0, parts.calls)
        return [
            {
                "type": "function_call",
                "id": f"fc_{end}",
                "call_id": f"call_{end}",
                "name": call["name"],
                "arguments": call["arguments"],
                "status": "completed",
            }
            for end, call in zip(ids, parts.calls, strict=True)
        ]


class _ResponseFormat(streams.Format):
    """Events of `/v1/responses`."""

    def __init__(self, reply: _Reply, service: Service):
        super().__init__(
            service.backend.tokenizer.decode, reply.form, has_tools=reply.body.may_call
        )
        self._reply = reply
        self._number = 0  # of the next event
        self._index = 0  # of the open item of the output, or of the next one
        self._open = ""  # kind of the open item
        self._text = ""  # of the open item

    def begin(self, number: int) -> list[str]:
        """Implements `Format.begin`."""
        response = self._reply.response("in_progress", [])
        kinds = ("response.created", "response.in_progress")
        return [self._event(kind, response=response) for kind in kinds]

    def end(self, number: int, result: Generation) -> list[str]:
        """Implements `Format.end`."""
        parts, status = self._reply.read(result), self._reply.status(result)
        found = self._write_news(number, parts.thinking, parts.text)
        if not (self._open or self._index or parts.calls):
            found += self._start("message")
        found += self._finish("completed" if self._open == "reasoning" else status)
        for item in self._reply.calls(parts, result):
            started = {**item, "arguments": "", "status": "in_progress"}
            place = {"item_id": item["id"], "output_index": self._index}
            kind = "response.function_call_arguments"
            found += [
                self._item_event("added", started),
                self._event(f"{kind}.delta", **place, delta=item["arguments"]),
                self._event(
                    f"{kind}.done", **place, name=item["name"], arguments=item["arguments"]
                ),
                self._item_event("done", item),
            ]
            self._index += 1
        return [*found, self._event(f"response.{status}", response=self._reply.whole(result))]

    def fail(self, message: str) -> str:
        """Implements `Format.fail`."""
        error = {"code": "server_error", "message": message}
        return self._event(
            "response.failed", response=self._reply.response("failed", [], error=error)
        )

    def _write(self, number: int, kind: str, text: str) -> list[str]:
        name = _KINDS[kind]
        started = [] if self._open == name else [*self._finish("completed"), *self._start(name)]
        self._text += text
        return [*started, self._text_event("delta", delta=text)]

    def _start(self, kind: str) -> list[str]:
        self._open, self._text = kind, ""
        return [
            self._item_event("added", self._reply.item(kind, None, "in_progress")),
            self._part_event("added"),
        ]

    def _finish(self, status: str) -> list[str]:
        """Returns the events at the end of the open item, if there is one."""
        if not self._open:
            return []
        found = [
            self._text_event("done", text=self._text),
            self._part_event("done"),
            self._item_event("done", self._reply.item(self._open, self._text, status)),
        ]
        self._open, self._index = "", self._index + 1
        return found

    def _text_event(self, event: str, **fields: Any) -> str:
        name = "reasoning_text" if self._open == "reasoning" else "output_text"
        logprobs: dict[str, Any] = {} if self._open == "reasoning" else {"logprobs": []}
        return self._event(f"response.{name}.{event}", **self._place(), **fields, **logprobs)

    def _part_event(self, event: str) -> str:
        shown = _part(self._open, self._text)
        return self._event(f"response.content_part.{event}", **self._place(), part=shown)

    def _place(self) -> dict[str, Any]:
        item = self._reply.item(self._open, None, "")
        return {"item_id": item["id"], "output_index": self._index, "content_index": 0}

    def _item_event(self, event: str, item: dict[str, Any]) -> str:
        kind = f"response.output_item.{event}"
        return self._event(kind, output_index=self._index, item=item)

    def _event(self, kind: str, **fields: Any) -> str:
        number, self._number = self._number, self._number + 1
        return streams.named_event({"type": kind, "sequence_number": number, **fields})


def _part(kind: str, text: str) -> dict[str, Any]:
    """Returns the content of an item, a message or reasoning."""
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(result: Generation) -> dict[str, Any]:
    prompt, sampled = len(result.prompt_ids), len(result.token_ids)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": sampled,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + sampled,
    }
