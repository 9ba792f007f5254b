"""Prompts equal those of transformers for the forms of the chat templates of public models."""

import pytest

from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.template import ChatTemplate, with_variables
from tests.text.conftest import TEMPLATES

NAMES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Sees <é> & 'x'.",
            "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "z": None},
        },
    }
]
CALL = {"id": "abcdefghi", "type": "function"}
CALL["function"] = {"name": "look", "arguments": {"z": "a <é>", "at": [1, None, True]}}
SYSTEM, USER = (
    {"role": "system", "content": " Be kind. "},
    {"role": "user", "content": "hi {{ x }}\n"},
)
ANSWER = {"role": "assistant", "content": "<think>\nwhy\n</think>\n\n  yes & <no>"}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "a door é", "tool_call_id": "abcdefghi", "name": "look"}
CHATS = {
    "one question": [USER],
    "a system message": [SYSTEM, USER],
    "an answer": [USER, ANSWER],
    "several turns": [SYSTEM, USER, ANSWER, USER, ANSWER, USER],
    "a call": [USER, CALLS, RESULT],
    "calls and answers": [SYSTEM, USER, CALLS, RESULT, ANSWER, USER],
    "an order that many refuse": [ANSWER, USER],
}
VARIABLES = {
    "none": {"strftime_now": "1 Jan 2026"},
    "a date": {"date_string": 'the "first"\n'},
    "thinking": {"strftime_now": "2026", "enable_thinking": False, "number": 3},
}


@pytest.mark.parametrize("variables", VARIABLES.values(), ids=list(VARIABLES))
@pytest.mark.parametrize("name", NAMES)
def test_prompts_equal_those_of_transformers(name, variables, make_pair):
    tokenizer, reference = make_pair(name)
    # transformers takes no function as a variable
    date = {name: value for name, value in variables.items() if name == "strftime_now"}
    given = {name: value for name, value in variables.items() if name not in date}
    given["chat_template"] = with_variables(tokenizer.chat_template, date)
    source = with_variables(tokenizer.chat_template, variables)
    template = ChatTemplate(source, tokenizer.template_variables)
    refused = 0
    for messages in CHATS.values():
        for tools in ([], TOOLS):
            for asks in (False, True):
                try:
                    expected = reference.apply_chat_template(
                        messages,
                        tools=tools or None,
                        add_generation_prompt=asks,
                        tokenize=False,
                        **given,
                    )
                except Exception:  # noqa: BLE001 - a template may raise anything
                    refused += 1
                    with pytest.raises(ValueError, match="chat template: "):
                        template.render(messages, tools, asks)
                else:
                    assert template.render(messages, tools, asks) == expected
    assert refused < 4 * len(CHATS)


@pytest.mark.parametrize("name", NAMES)
def test_templates_that_only_extend_an_episode_are_accepted(name, make_pair):
    tokenizer, _ = make_pair(name)
    tokenizer = tokenizer.with_variables({"strftime_now": "1 Jan 2026"})
    if name == "glm_like":  # the header of the next message ends an answer
        with pytest.raises(ValueError, match="a sampled turn would have no end"):
            ChatRenderer(tokenizer)
    else:
        ChatRenderer(tokenizer)


@pytest.mark.parametrize(
    "variables", [{"a b": 1}, {"_x": 1}, {"x": None}, {"x": ["a"]}, {"x": {"y": 1}}]
)
def test_a_variable_that_no_template_can_read_is_refused(variables):
    with pytest.raises(ValueError, match="template variable"):
        with_variables("x", variables)


def test_a_date_is_refused_until_it_is_fixed(make_pair):
    tokenizer, _ = make_pair("llama31_like")
    with pytest.raises(ValueError, match=r"config\.tokenizer\.variables={'strftime_now'"):
        ChatRenderer(tokenizer)
    ChatRenderer(tokenizer.with_variables({"date_string": "1 Jan 2026"}))


def test_variables_change_nothing_else_of_a_template():
    for source in ("\n\nx", "  {% if true %}\n y{% endif %}", " x", "{{ a }}\n"):
        written = with_variables(source, {"a": 1, "strftime_now": "2026"})
        messages = [{"role": "user", "content": ""}]
        given = ChatTemplate(source, {"a": 1}).render(messages)
        assert ChatTemplate(written, {}).render(messages) == given
