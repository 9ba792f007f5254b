"""Tool calls in answers and streams, for any text and any cut of it into tokens."""

import hypothesis
import pytest
from hypothesis import strategies as st

from agentgym_jax.serving.tool_calls import parse_tool_calls, read_json, stable_text
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.serving.parts import MODEL, user

LOOK = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "the café 😀"}}\n</tool_call>'
PIECES = [
    *(CALL, "<tool_call>", "</tool_call>", "<tool", "_call>", "<", ">", '{"name": "a"}'),
    *("\n", "\n\n", " ", "a", "b", "ab", "é", "😀", "\ufffd", "text "),
]
TOKENIZER = byte_tokenizer()

texts = st.lists(st.sampled_from(PIECES).map(str.encode) | st.binary(max_size=3), max_size=12).map(
    b"".join
)
stops = st.lists(
    st.sampled_from([p for p in PIECES if "\ufffd" not in p]) | st.text("ab<\n", min_size=1),
    max_size=3,
).map(tuple)


def end(tokens, stop):
    """Returns the number of tokens that are sampled and the final text."""
    for n in range(1, len(tokens) + 1):
        text = TOKENIZER.decode(tokens[:n])
        found = [text.index(word) for word in stop if word in text]
        if found:
            return n, text[: min(found)]
    return len(tokens) + 1, TOKENIZER.decode(tokens)


@hypothesis.settings(max_examples=400, deadline=None, derandomize=True, database=None)
@hypothesis.given(texts, st.booleans(), stops)
def test_stable_text_is_a_growing_part_of_the_final_content(data, has_tools, stop):
    tokens = list(data)
    count, final = end(tokens, stop)
    content = parse_tool_calls(final)[0] if has_tools else final
    sent = ""
    for n in range(1, count):  # every cut into tokens shows some of these texts
        text = stable_text(TOKENIZER.decode(tokens[:n]), has_tools=has_tools, stop=stop)
        assert sent.startswith(text) or text.startswith(sent)
        sent = max(sent, text, key=len)
        assert content.startswith(sent)


@hypothesis.settings(max_examples=200, deadline=None, derandomize=True, database=None)
@hypothesis.given(texts)
def test_any_text_is_parsed(data):
    text = data.decode("utf-8", errors="replace")
    content, calls = parse_tool_calls(text)
    assert text.startswith(content)
    assert calls or content == text
    for call in calls:
        assert isinstance(read_json(call["arguments"]), dict)
        call["arguments"].encode()


@pytest.mark.parametrize(
    "inside",
    [
        *("", "{}", "[]", "1", "look", '{"name": 1}', '{"name": "a", "arguments": []}', "{'name'}"),
        '{"name": "a", "arguments": {"x": NaN}}',
        '{"name": "a", "arguments": {"x": 1e999}}',
        '{"name": "a", "arguments": {"x": %s}}' % ("1" * 5000),
        '{"name": "a", "arguments": {"x": %s}}' % ("[" * 5000),
        '{"name": "a", "arguments": {"x": "\\ud800"}}',
        '{"name": "\\ud800"}',
    ],
)
def test_a_malformed_call_stays_text(inside):
    text = f"before\n{CALL}\n<tool_call>{inside}</tool_call>"
    assert parse_tool_calls(text) == (text, [])


def test_calls_are_found_in_order():
    text = f'before\n\n{CALL}\n<tool_call>{{"name": "go"}}</tool_call> after'
    content, calls = parse_tool_calls(text)
    assert content == "before"
    assert [call["name"] for call in calls] == ["look", "go"]
    assert read_json(calls[0]["arguments"]) == {"at": "the café 😀"}
    assert read_json(calls[1]["arguments"]) == {}


@pytest.mark.parametrize("text", ["<tool_call>" * 500_000, "<tool_call>" + " " * 5_000_000])
def test_long_texts_take_linear_time(text):
    assert parse_tool_calls(text) == (text, [])  # a regular expression would take hours


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
    create = served.client().chat.completions.create
    for call in calls:
        messages[1]["tool_calls"] = [call]
        assert create(model=MODEL, messages=messages, tools=LOOK, max_tokens=3).choices
