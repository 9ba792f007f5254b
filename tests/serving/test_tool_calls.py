"""Tool calls in answers and streams of a server."""

import pytest

from tests.serving.parts import MODEL, user

LOOK = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "the café 😀"}}\n</tool_call>'


def ask(server, **options):
    return server.client().chat.completions.create(
        model=MODEL, messages=[user("look around")], **options
    )


def join(stream):
    """Returns text, calls by index, and finish reasons of a stream."""
    text, calls, reasons = "", {}, []
    for chunk in stream:
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for call in delta.tool_calls or []:
            calls[call.index] = (call.id, call.function.name, call.function.arguments)
        reasons += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
    return text, calls, reasons


@pytest.mark.parametrize("before", ["", "I look.\n", "a < b 😀 <tool"])
def test_answers_and_streams_have_tool_calls(fake, before):
    fake.backend.text = f'{before}{CALL}\n<tool_call>\n{{"name": "go"}}\n</tool_call>'
    choice = ask(fake, tools=LOOK).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert (choice.message.content or "") == before.rstrip("\n")
    names = [call.function.name for call in choice.message.tool_calls]
    assert names == ["look", "go"]
    assert len({call.id for call in choice.message.tool_calls}) == 2
    text, calls, reasons = join(ask(fake, tools=LOOK, stream=True))
    assert text == before.rstrip("\n")
    assert reasons == ["tool_calls"]
    assert [calls[i] for i in range(2)] == [
        (call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls
    ]


@pytest.mark.parametrize("options", [{}, {"tools": LOOK, "tool_choice": "none"}])
def test_without_tools_a_call_is_text(fake, options):
    fake.backend.text = CALL
    choice = ask(fake, **options).choices[0]
    assert choice.message.content == CALL
    assert choice.message.tool_calls is None
    assert join(ask(fake, stream=True, **options)) == (CALL, {}, ["stop"])


def test_malformed_calls_are_streamed_as_text(fake):
    fake.backend.text = "I look.\n\n<tool_call>\n{broken}\n</tool_call>\n"
    choice = ask(fake, tools=LOOK).choices[0]
    assert choice.message.content == fake.backend.text
    assert choice.finish_reason == "stop"
    assert join(ask(fake, tools=LOOK, stream=True)) == (fake.backend.text, {}, ["stop"])


def test_answers_with_calls_may_be_sent_back(served):
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": arguments}}
        for arguments in ("{}", "not JSON", "1" * 9000, "[" * 9000, '{"a": "\\ud800"}', "NaN")
    ]
    messages = [
        user("look"),
        {"role": "assistant", "content": None, "tool_calls": calls[:1]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a door"},
    ]
    for call in calls:
        messages[1]["tool_calls"] = [call]
        body = {"messages": messages, "tools": LOOK, "max_tokens": 3}
        answer = served.web.post("/v1/chat/completions", json=body)
        if len(call["function"]["arguments"]) < 1000:
            assert answer.status_code == 200, answer.text
        else:
            assert answer.json()["error"]["code"] == "context_length_exceeded"
