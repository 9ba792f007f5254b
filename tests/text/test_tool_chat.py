"""Conversations with tools: tokens of the whole template, continuation, harmless contents."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import Tokenizer
from agentgym_jax.text.tool_chat import TOOL_PARSERS, ToolChat

TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}\n<tool_call>\n{{ call.function | tojson }}\n</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks <|im_end|>."}}]
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": {"at": "a key"}}}
RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TEXT = st.lists(
    st.sampled_from(
        ["door", "\n", " ", "<|im_end|>", "<|im_start|>user\n", "é", "\ue0000.0\ue001"]
    ),
    max_size=5,
).map("".join)


def user(text):
    return {"role": "user", "content": text}


def assistant(text, *calls):
    message = {"role": "assistant", "content": text}
    return message | ({"tool_calls": list(calls)} if calls else {})


def tool(text):
    return {"role": "tool", "content": text, "tool_call_id": "1"}


@pytest.fixture
def tokenizer(tiny_json):
    return Tokenizer(tiny_json, {"chat_template": TEMPLATE, "eos_token": "<|im_end|>"})


@pytest.fixture
def chat(tokenizer):
    return ToolChat(ChatRenderer(tokenizer), tokenizer)


def whole(tokenizer, messages, tools=()):
    """Returns the ids of the whole rendered conversation, for contents without special tokens."""
    text = ChatRenderer(tokenizer).template.render(messages, tools, asks=True)
    return tokenizer.encode_with_specials(text)


def test_an_opening_has_the_tokens_of_the_whole_template(chat, tokenizer):
    tools = [{"type": "function", "function": {"name": "look"}}]
    messages = [user("a door"), assistant("", CALL), tool("a key")]
    chunks = chat.opening(messages, tools)
    assert sum(chunks, []) == whole(tokenizer, messages, tools)
    # The first chunk ends before the last message, so conversations can share it.
    assert tokenizer.decode(chunks[1]).startswith("user\na key<|im_end|>")


def test_a_conversation_without_tools_has_the_tokens_of_an_episode(chat, tokenizer):
    renderer = ChatRenderer(tokenizer)
    messages = [{"role": "system", "content": "rules"}, user("a door")]
    assert chat.opening(messages, []) == renderer.opening(messages)
    messages += [assistant("open"), user("done")]
    expected = [*renderer.close_turn(True), *renderer.observation("done")]
    assert chat.continuation(messages, [], 3, True) == expected


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_continuation_extends_the_opening_and_the_answer(chat, tokenizer, is_stopped):
    tools = [{"type": "function", "function": {"name": "look"}}]
    messages = [user("a door"), assistant("", CALL)]
    opening = sum(chat.opening(messages[:1], tools), [])
    stop = tokenizer.special_tokens["<|im_end|>"]
    messages += [tool("a key"), tool("a box")]
    expected = whole(tokenizer, messages, tools)
    added = chat.continuation(messages, tools, 2, is_stopped)
    stops = [i for i, token in enumerate(expected) if token == stop]
    # The stop token of the answer is the third: one each after the tools and the user.
    end = stops[2] + 1 if is_stopped else stops[2]
    assert expected[: len(opening)] == opening
    assert added == expected[end:]


@RELAXED
@given(contents=st.lists(TEXT, min_size=3, max_size=3))
def test_no_content_can_end_its_message(chat, tokenizer, contents):
    first, argument, last = contents
    call = {**CALL, "function": {"name": "look", "arguments": {"at": argument}}}
    messages = [user(first), assistant("", call), tool(last)]
    ids = sum(chat.opening(messages, TOOLS), [])
    plain = [user("a"), assistant("", CALL), tool("b")]
    specials = np.array(sorted(tokenizer.special_tokens.values()))

    def structure(tokens):
        return [token for token in tokens if token in specials]

    assert structure(ids) == structure(sum(chat.opening(plain, TOOLS), []))
    text = ChatRenderer(tokenizer).template.render(messages, TOOLS, asks=True)
    assert tokenizer.decode(ids) == text


def test_a_template_that_changes_old_messages_gives_no_continuation(tiny_json):
    forgetful = TEMPLATE.replace(
        "{{ m.content }}", "{{ m.content if loop.last or not tools else '' }}"
    )
    tokenizer = Tokenizer(tiny_json, {"chat_template": forgetful, "eos_token": "<|im_end|>"})
    chat = ToolChat(ChatRenderer(tokenizer), tokenizer)
    messages = [user("a door"), assistant("open"), user("go on")]
    assert chat.continuation(messages, TOOLS, 2, True) is None
    assert chat.continuation(messages, [], 2, True) is not None


def test_an_answer_cannot_follow_an_answer(chat):
    messages = [user("a door"), assistant("open")]
    with pytest.raises(ValueError, match="must be a user's or a tool's"):
        chat.opening(messages, [])
    with pytest.raises(ValueError, match="must be a user's or a tool's"):
        chat.continuation([*messages, assistant("again")], [], 2, True)


def test_the_form_of_mistral_is_found_in_its_template(tiny_json):
    template = (
        "{% for t in tools or [] %}[AVAILABLE_TOOLS]{{ t | tojson }}{% endfor %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{% if m.tool_calls %}[TOOL_CALLS] [{% for call in m.tool_calls %}"
        "{{ call.function | tojson }}{% endfor %}]{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tokenizer = Tokenizer(tiny_json, {"chat_template": template, "eos_token": "<|im_end|>"})
    assert ToolChat(ChatRenderer(tokenizer), tokenizer).form == TOOL_PARSERS["mistral"]


def test_a_parser_by_name_needs_a_template_with_a_place_for_tools(tiny_json):
    plain = TEMPLATE[TEMPLATE.index("{% for m") :]
    for template, form in ((TEMPLATE, TOOL_PARSERS["json"]), (plain, None)):
        tokenizer = Tokenizer(tiny_json, {"chat_template": template, "eos_token": "<|im_end|>"})
        chat = ToolChat(ChatRenderer(tokenizer), tokenizer, tool_parser="json")
        assert chat.form == form


def test_thinking_may_begin_in_the_prompt(tiny_json):
    for start, opens in (("", False), ("<think>\n", True)):
        template = TEMPLATE.replace("assistant\n{% endif %}", "assistant\n" + start + "{% endif %}")
        template = template.replace(
            "{{ m.content }}", "{{ m.content.split('</think>')[-1].lstrip('\\n') }}"
        )
        tokenizer = Tokenizer(tiny_json, {"chat_template": template, "eos_token": "<|im_end|>"})
        assert ToolChat(ChatRenderer(tokenizer), tokenizer).opens_thinking == opens
