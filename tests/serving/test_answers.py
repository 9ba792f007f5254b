"""Parts of answers by the parsers that a server is started with, for any cut into tokens."""

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from agentgym_jax.serving.answer_parts import AnswerForm
from agentgym_jax.serving.digests import extend, for_template
from agentgym_jax.serving.replies import assistant_message
from agentgym_jax.text.tool_calls import parse_tool_calls, stable_text
from agentgym_jax.text.tool_chat import TOOL_PARSERS
from tests.examples import fixed
from tests.serving.parts import MODEL, serving_script, user

ARGUMENTS = {"at": "é", "n": [1]}
TEXT = json.dumps(ARGUMENTS)
CALL = '{"name": "look", "KEY": ARGUMENTS}'.replace("ARGUMENTS", TEXT)
WITH_ARGUMENTS, WITH_PARAMETERS = (CALL.replace("KEY", key) for key in ("arguments", "parameters"))
WRITTEN = {
    "hermes": f"I look.\n<tool_call>{WITH_ARGUMENTS}</tool_call>",
    "json": WITH_ARGUMENTS,
    "llama3": WITH_PARAMETERS,
    "mistral": f"I look.\n[TOOL_CALLS] [{WITH_ARGUMENTS}]",
    "qwen3_coder": "I look.\n<tool_call>\n<function=look>\n<parameter=at>\né\n</parameter>\n"
    "<parameter=n>\n[1]\n</parameter>\n</function>\n</tool_call>",
}
LOOK = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def test_every_parser_is_tested():
    assert {"auto", *WRITTEN} == set(TOOL_PARSERS)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_parser_reads_the_calls_of_its_form(name):
    form, text = TOOL_PARSERS[name], WRITTEN[name]
    content, (call,) = parse_tool_calls(text, form)
    assert content == ("I look." if text.startswith("I") else "")
    assert (call["name"], json.loads(call["arguments"])) == ("look", ARGUMENTS)
    for n in range(len(text)):  # no part of a call is shown
        assert content.startswith(stable_text(text[:n], has_tools=True, form=form))


@pytest.mark.parametrize(
    "rest", ["", "[]", "[1]", '[{"name": 1}]', '{"name": "look"}', '[{"name": "a"}, 1]']
)
def test_a_malformed_list_of_calls_stays_text(rest):
    text = f"I look.[TOOL_CALLS]{rest}"
    assert parse_tool_calls(text, TOOL_PARSERS["mistral"]) == (text, [])


def test_a_list_has_several_calls():
    calls = [{"name": "look"}, {"name": "go", "arguments": {"to": "a door"}}]
    text = f"[TOOL_CALLS]{json.dumps(calls)}"
    found = parse_tool_calls(text, TOOL_PARSERS["mistral"])[1]
    assert [(c["name"], json.loads(c["arguments"])) for c in found] == [
        ("look", {}),
        ("go", {"to": "a door"}),
    ]


def test_the_ids_of_calls_differ_between_conversations(script):
    def ids(text):
        script.engine.texts = [WRITTEN["hermes"]] * 2
        create = script.client().chat.completions.create
        found = [create(model=MODEL, messages=[user(text)], tools=LOOK) for _ in range(2)]
        return [answer.choices[0].message.tool_calls[0].id for answer in found]

    (first, again), (other, _) = ids("a"), ids("b")
    assert first == again  # the same tokens, as with the same seed
    assert first != other


def test_a_server_uses_the_parser_of_its_flag(tokenizer):
    for name in ("auto", "mistral"):
        with serving_script(tokenizer, tool_parser=name) as server:
            server.engine.texts = [WRITTEN["mistral"]]
            choice = (
                server.client()
                .chat.completions.create(model=MODEL, messages=[user("hi")], tools=LOOK)
                .choices[0]
            )
            assert bool(choice.message.tool_calls) == (name == "mistral")


PIECES = ["<think>", "</think>", "<th", "</", ">", "\n", " ", "a", "é", WRITTEN["hermes"], "STOP"]


@fixed(200)
@hypothesis.given(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.booleans(), st.booleans()
)
def test_the_parts_of_a_stream_begin_those_of_the_answer(text, is_open, has_tools):
    form = AnswerForm(separates_thinking=True, opens_thinking=is_open)
    whole = text.partition("STOP")[0]
    final = form.read(whole, has_tools=has_tools)
    assert final.thinking in text
    for n in range(text.find("STOP") + 4 if "STOP" in text else len(text) + 1):
        parts = form.stable(text[:n], has_tools=has_tools, stop=("STOP",))
        assert final.thinking.startswith(parts.thinking)
        assert final.text.startswith(parts.text)
        assert not parts.text or parts.thinking == final.thinking


@fixed(200)
@hypothesis.given(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.booleans(), st.booleans()
)
def test_an_answer_that_is_sent_back_has_the_digest_of_the_sampled_one(text, is_open, separates):
    form = AnswerForm(separates_thinking=separates, opens_thinking=is_open)
    parts = form.read(text, has_tools=True)
    message = assistant_message(parts, ["x"] * len(parts.calls))
    whole = {"role": "assistant", "content": text}
    for is_loose in (False, True):
        assert extend(b"", for_template(message, form), form, is_loose=is_loose) == extend(
            b"", whole, form, is_loose=is_loose
        )


def test_thinking_is_a_field_of_answers_and_streams(thinking_script):
    text = "<think>\nhm\n</think>\n\nDone."
    thinking_script.engine.texts = [text, text, "Bye."]
    create = thinking_script.client().chat.completions.create
    message = create(model=MODEL, messages=[user("think")]).choices[0].message
    assert (message.reasoning_content, message.content) == ("\nhm\n", "\n\nDone.")
    chunks = list(create(model=MODEL, messages=[user("think")], stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "\nhm\n"
    assert "".join(d.content or "" for d in deltas) == "\n\nDone."


def test_an_answer_without_its_thinking_is_another_history(thinking_script):
    thinking_script.engine.texts = ["<think>hm</think>Done.", "Bye.", "Bye."]
    create = thinking_script.client().chat.completions.create
    chat, messages = thinking_script.backend.chat(None), [user("think again")]
    forks = chat.num_forks
    whole = create(model=MODEL, messages=messages).choices[0].message.to_dict()
    create(model=MODEL, messages=[*messages, whole, user("go on")])
    assert chat.num_forks == forks
    del whole["reasoning_content"]
    create(model=MODEL, messages=[*messages, whole, user("go on")])
    assert chat.num_forks == forks + 1


def test_a_rewritten_history_is_counted_once(script):
    chat, create = script.backend.chat(None), script.client().chat.completions.create
    script.engine.texts = ["Done.", "Bye.", "Bye.", "Bye."]
    create(model=MODEL, messages=[user("rewrite this")])
    forks = chat.num_forks
    history = [user("rewrite this"), {"role": "assistant", "content": "Do"}, user("go on")]
    assert chat.count_tokens(history, []) > 0
    assert chat.num_forks == forks
    for n in (1, 2):
        create(model=MODEL, messages=history, n=n)
    assert chat.num_forks == forks + 1
