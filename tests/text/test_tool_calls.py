"""Tool calls in the texts of models, for any text and any cut of it into tokens."""

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.text.tool_calls import parse_tool_calls, read_json, stable_text
from agentgym_jax.text.tool_chat import ToolForm
from tests.examples import fixed

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


@fixed(400)
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


FORMS = [ToolForm(), ToolForm("", "", "parameters"), ToolForm(arguments="")]
VALUES = ["north", "</tool_call>", "</think>", "a\nb", "{", 1, [1, "</tool_call>"], {"x": None}]


def write_call(form, name, arguments):
    """Returns a call as a model writes it."""
    if form.arguments:
        call = json.dumps({"name": name, form.arguments: arguments})
    else:
        shown = {k: v if isinstance(v, str) else json.dumps(v) for k, v in arguments.items()}
        values = [f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in shown.items()]
        call = f"<function={name}>\n{''.join(values)}</function>"
    return f"{form.opening}\n{call}\n{form.closing}"


@fixed(100)
@hypothesis.given(
    st.sampled_from(FORMS),
    st.lists(st.dictionaries(st.sampled_from("ab"), st.sampled_from(VALUES)), max_size=3),
    st.sampled_from(["", "<think>\nno\n</think>\n", "maybe CALL </think>", "<think>CALL"]),
)
def test_calls_are_read_whole_and_never_from_the_thinking(form, calls, thinking):
    thinking = thinking.replace("CALL", write_call(form, "wrong", {}))
    inner = "</think>" in json.dumps(calls)
    text = thinking + "\n".join(write_call(form, "look", arguments) for arguments in calls)
    content, found = parse_tool_calls(text, form)
    is_open = thinking.startswith("<think>") and "</think>" not in thinking
    if is_open or not calls:
        assert (content, found) == (text, []) or inner
    elif not inner:
        assert [read_json(call["arguments"]) for call in found] == calls
        assert content == thinking.rstrip("\n") or content == thinking


@fixed(200)
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


@pytest.mark.parametrize("text", ["<tool_call>" * 500_000, "<tool_call>" + " " * 5_000_000])
def test_long_texts_take_linear_time(text):
    assert parse_tool_calls(text) == (text, [])  # a regular expression would take hours
