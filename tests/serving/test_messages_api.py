"""Anthropic's Messages API with its own client: answers, streams, token counts and errors."""

import json

import pytest

from agentgym_jax.serving import wire
from agentgym_jax.serving.messages_api import MessagesRequest
from agentgym_jax.serving.requests import NotServingError, OverloadedError, RequestError
from tests.serving.parts import CONTEXT, MODEL, FakeBackend, serving, user

ROUTE = "/v1/messages"
LOOK = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}]
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "é 😀"}}\n</tool_call>'
ASK = {"model": MODEL, "max_tokens": 20, "messages": [user("hi")]}


def ask(server, **fields):
    return server.anthropic().messages.create(**ASK | fields)


def events(server, **fields):
    """Returns the events of a stream by their names, without repeated ones, and their data."""
    text = server.web.post(ROUTE, json=ASK | {"stream": True} | fields).text
    blocks = [event.split("\n") for event in text.strip().split("\n\n")]
    data = [json.loads(line.removeprefix("data: ")) for _, line in blocks]
    assert [name.removeprefix("event: ") for name, _ in blocks] == [d["type"] for d in data]
    names = [d["type"] for d in data]
    return [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n], data


def test_an_answer_with_tool_calls_has_the_form_of_anthropic(fake):
    fake.backend.text = f"I look.\n{CALL}\n{CALL}"
    answer = ask(fake, tools=LOOK)
    text, *calls = answer.content
    assert (text.type, text.text) == ("text", "I look.")
    assert [(call.type, call.name, call.input) for call in calls] == [
        ("tool_use", "look", {"at": "é 😀"})
    ] * 2
    assert calls[0].id != calls[1].id
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", MODEL)
    assert (answer.stop_reason, answer.stop_sequence) == ("tool_use", None)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (
        3,
        len(fake.backend.text.encode()),
    )


def test_a_conversation_is_translated_to_the_messages_of_a_chat():
    call = {"type": "tool_use", "id": "x", "name": "look", "input": {"at": 1}}
    result = {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "a"}]}
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    body = {
        "system": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}],
        "messages": [
            user("hi"),
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "I look."}, call]},
            user([{"type": "text", "text": "b"}, result, {"type": "text", "text": "c"}]),
            {"role": "assistant", "content": "So"},
            {"role": "assistant", "content": [{"type": "text", "text": " what?"}]},
            user([]),
            {"role": "assistant", "content": []},
            user("bye"),
        ],
        "tools": [LOOK[0] | {"cache_control": {"type": "ephemeral"}}],
        "max_tokens": 1,
    }
    request = wire.parse(MessagesRequest, json.dumps(body).encode())
    function = {"name": "look", "arguments": {"at": 1}}
    assert request.plain_messages() == [
        {"role": "system", "content": "Be kind."},
        user("hi"),
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "x", "type": "function", "function": function}],
        },
        user("b"),
        {"role": "tool", "content": "a", "tool_call_id": "x"},
        user("c"),
        {"role": "assistant", "content": "So what?"},
        user(""),
        {"role": "assistant", "content": ""},
        user("bye"),
    ]
    plain = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    assert request.plain_tools() == [{"type": "function", "function": plain}]


@pytest.mark.parametrize("fields", [{}, {"tools": LOOK, "tool_choice": {"type": "none"}}])
def test_without_tools_a_call_is_text(fake, fields):
    fake.backend.text = CALL
    answer = ask(fake, **fields)
    assert [block.text for block in answer.content] == [CALL]
    assert answer.stop_reason == "end_turn"


def test_an_empty_answer_has_an_empty_block(fake):
    fake.backend.text = ""
    assert [block.text for block in ask(fake).content] == [""]
    names, data = events(fake)
    assert names == [
        *("message_start", "content_block_start", "ping", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]


def test_the_reason_of_the_end_is_given(served):
    cut = ask(served, max_tokens=3, extra_body={"seed": 5})
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)
    whole = ask(served, max_tokens=60, extra_body={"seed": 5}).content[0].text
    stop = next(whole[i : i + 2] for i in range(4, 50) if "\ufffd" not in whole[i : i + 2])
    stopped = ask(served, max_tokens=60, stop_sequences=["not there", stop], extra_body={"seed": 5})
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", stop)
    assert stopped.content[0].text == whole[: whole.index(stop)]


def test_a_stream_has_the_events_of_anthropic(thinking_script):
    text = f"<think>hm</think>I look.\n{CALL}"
    thinking_script.engine.texts = [text, text]
    names, data = events(thinking_script, tools=LOOK, return_token_ids=True)
    start, block, end = "content_block_start", "content_block_delta", "content_block_stop"
    assert names == [
        *("message_start", start, "ping", block, end, start, block, end, start, block, end),
        *("message_delta", "message_stop"),
    ]
    assert [d["index"] for d in data if d["type"] == start] == [0, 1, 2]
    kinds = [d["delta"]["type"] for d in data if d["type"] == block]
    assert list(dict.fromkeys(kinds)) == [
        *("thinking_delta", "signature_delta", "text_delta", "input_json_delta")
    ]
    last = data[-2]
    assert data[0]["message"]["usage"]["input_tokens"] == last["usage"]["input_tokens"] > 0
    assert len(last["token_ids"]) == last["usage"]["output_tokens"]


def test_a_stream_has_the_message_of_the_whole_answer(thinking_script, served):
    text = f"<think>hm</think>I look.\n{CALL}"
    thinking_script.engine.texts = [text, text]
    for server, fields in ((thinking_script, {}), (served, {"extra_body": {"seed": 3}})):
        fields |= {"tools": LOOK, "messages": [user("a stream")]}
        whole = ask(server, **fields).to_dict()
        with server.anthropic().messages.stream(**ASK | fields) as stream:
            joined = stream.get_final_message().to_dict()
        for block in joined["content"]:
            block.pop("parsed_output", None)  # the client's own field
        del whole["id"]
        assert {name: joined[name] for name in whole} == whole


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "metadata": {"user_id": "me"}},
        {"system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]},
        {"tools": [LOOK[0] | {"type": "custom", "cache_control": {"type": "ephemeral"}}]},
        {"tool_choice": {"type": "auto"}, "thinking": {"type": "adaptive"}, "stop_sequences": []},
        {"messages": [user([{"type": "text", "text": "a", "citations": None}]), user("b")]},
        {"messages": [user("a"), {"role": "assistant", "content": []}, user("b")]},
        {"messages": [user([{"type": "tool_result", "tool_use_id": "x", "is_error": True}])]},
    ],
)
def test_fields_of_usual_clients_are_accepted(served, fields):
    answer = served.web.post(ROUTE, json=ASK | {"max_tokens": 2} | fields)
    assert answer.status_code == 200, answer.text


def refused(answer, status=400):
    """Returns type and text of an error."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert (body["type"], set(body["error"])) == ("error", {"type", "message"})
    return body["error"]["type"], body["error"]["message"]


def block(**fields):
    return {"messages": [user([fields])]}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the last message"),
        (block(type="image", source={}), "messages.0.content.0"),
        (block(type="text"), "messages.0.content.0"),
        (block(type="tool_use", id="x", name="look", input={}), "messages.0.content.0"),
        (block(type="tool_result", content="x"), "messages.0.content.0.tool_use_id"),
        (block(type="tool_result", tool_use_id="x", content=[{"type": "image"}]), "0.content"),
        (block(type="tool_result", tool_use_id="x", content=5), "messages.0.content.0.content"),
        (
            {"messages": [user("x"), {"role": "assistant", "content": [{"type": "tool_use"}]}]},
            "input",
        ),
        ({"system": 5}, "system"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
        ({"tools": [{"name": ""}]}, "tools.0.name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "look"}}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),
        ({"stop_sequences": ["\ufffd"]}, "stop_sequences"),
        ({"stop": ["x"]}, "stop"),
        ({"output_config": {"effort": "low"}}, "output_config"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"n": 2}, "n is not supported"),
        ({"temperature": -1}, "temperature"),
        ({"model": "other"}, "'other'"),
        ({"messages": [user("x" * CONTEXT)]}, "prompt is too long"),
    ],
)
def test_wrong_fields_are_named(served, fields, named):
    kind, message = refused(served.web.post(ROUTE, json=ASK | fields))
    assert kind == "invalid_request_error"
    assert named in message


def test_tokens_are_counted_as_the_prompt_has_them(served):
    count = served.anthropic().messages.count_tokens
    messages = [user("how many?")]
    for _ in range(2):
        fields = {"messages": messages, "tools": LOOK, "system": "Be kind."}
        counted = count(model=MODEL, **fields).input_tokens
        answer = ask(served, **fields)
        assert counted == answer.usage.input_tokens
        messages += [answer.to_param() | {"content": answer.to_dict()["content"]}, user("and now?")]
    assert served.web.post(f"{ROUTE}/count_tokens", json={"messages": []}).status_code == 400
    assert served.backend.load() == (0, 0)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (OverloadedError("busy"), 429, "rate_limit_error"),
        (NotServingError("later"), 503, "overloaded_error"),
        (RequestError("no"), 400, "invalid_request_error"),
        (RuntimeError("a defect"), 500, "api_error"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_errors_of_the_policy_have_the_form_of_anthropic(
    fake, anthropic, error, status, kind, stream
):
    fake.backend.errors = [error]
    with pytest.raises(anthropic.APIStatusError) as caught:
        ask(fake, stream=stream)
    assert (caught.value.status_code, caught.value.body["error"]["type"]) == (status, kind)


def test_an_error_during_a_stream_is_its_last_event(fake, anthropic):
    fake.backend.text = None
    stream = iter(ask(fake, stream=True))
    assert next(stream).type == "message_start"
    fake.backend.open.pop().set_exception(NotServingError("the policy is updated"))
    with pytest.raises(anthropic.APIStatusError, match="the policy is updated"):
        list(stream)


def test_access_errors_have_the_form_of_anthropic(tokenizer, anthropic):
    with serving(FakeBackend(tokenizer), token="secret") as server:
        assert ask_with(server, "secret").content[0].text == "hello"
        with pytest.raises(anthropic.AuthenticationError, match="token is missing or wrong"):
            ask_with(server, "wrong")
        headers = {"x-api-key": "secret"}
        for method, path, status, kind in (
            ("POST", "/episodes/other/v1/messages", 404, "not_found_error"),
            ("GET", "/episodes/known/v1/messages", 405, "invalid_request_error"),
        ):
            answer = server.web.request(method, path, headers=headers)
            assert refused(answer, status)[0] == kind
        answer = server.web.post("/episodes/known/v1/messages", json=ASK, headers=headers)
        assert answer.status_code == 200


def ask_with(server, key):
    return server.anthropic(key).messages.create(**ASK)
