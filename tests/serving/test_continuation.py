"""Conversations in the form of each API: every prompt begins with the sampled tokens before it."""

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.examples import fixed
from tests.serving.parts import MODEL, serving_script, user

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
FUNCTION = (
    "<tool_call>\n<function=look>\n<parameter=at>\n{}\n</parameter>\n</function>\n</tool_call>"
)
LOOK = {"name": "look", "description": "Looks."}
CALL = '<tool_call>\n{"name": "look", "arguments": {"n": 1.0, "at": "é 😀"}}\n</tool_call>'
ANSWERS = [
    *("", "I look.", " \n spaced \n", CALL, f"I look.\n{CALL}\n{CALL} and more", "\n" + CALL),
    *(f"<think>hm</think>\n\nI look.\n{CALL}", "<think>\nhm\n</think>\n\nDone.", "<think>open"),
    *("<think></think>", f"<think>{CALL}</think>{CALL}", "a </think> b", "<tool_call>{broken"),
    '<tool_call>{"name": "look", "arguments": null}</tool_call>',
]


class Chat:
    """Conversation of `/v1/chat/completions`."""

    route = "/v1/chat/completions"

    def __init__(self):
        self.history = [{"role": "system", "content": "Be kind."}, user("go")]

    def body(self):
        tool = {"type": "function", "function": LOOK | {"parameters": SCHEMA}}
        return {"messages": self.history, "tools": [tool]}

    def ids(self, answer):
        return answer["prompt_token_ids"], answer["choices"][0]["token_ids"]

    def arguments(self, answer):
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        return json.loads(call["function"]["arguments"])

    def go_on(self, answer):
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "a door"} for c in calls]
        self.history += [message, *(results or [user("go on")])]


class Messages:
    """Conversation of `/v1/messages`."""

    route = "/v1/messages"

    def __init__(self):
        self.history = [user("go")]

    def body(self):
        tools = [LOOK | {"input_schema": SCHEMA}]
        limits = {"max_tokens": 900, "system": [{"type": "text", "text": "Be kind."}]}
        return {"messages": self.history, "tools": tools} | limits

    def ids(self, answer):
        return answer["prompt_token_ids"], answer["token_ids"]

    def arguments(self, answer):
        (block,) = answer["content"]
        return block["input"]

    def go_on(self, answer):
        blocks = answer["content"]
        for block in blocks:
            if "input" in block:  # JavaScript writes 1 for 1.0
                block["input"] = json.loads(json.dumps(block["input"]).replace("1.0", "1"))
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "a door"}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        self.history += [{"role": "assistant", "content": blocks}, user(results or "go on")]


class Responses:
    """Conversation of `/v1/responses`."""

    route = "/v1/responses"

    def __init__(self):
        self.history = [user("go")]

    def body(self):
        tools = [LOOK | {"type": "function", "parameters": SCHEMA, "strict": True}]
        return {"input": self.history, "tools": tools, "instructions": "Be kind."}

    def ids(self, answer):
        return answer["prompt_token_ids"], answer["token_ids"]

    def arguments(self, answer):
        (item,) = answer["output"]
        return json.loads(item["arguments"])

    def go_on(self, answer):
        results = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "a door"}
            for item in answer["output"]
            if item["type"] == "function_call"
        ]
        self.history += [*answer["output"], *(results or [user("go on")])]


def play(server, kind, texts):
    """Returns the prompt ids and the sampled ids of all answers of a conversation."""
    server.engine.texts[:], talk, found = texts, kind(), []
    for _ in texts:
        body = talk.body() | {"model": MODEL, "return_token_ids": True}
        answer = server.web.post(talk.route, json=body)
        assert answer.status_code == 200, answer.text
        found.append(talk.ids(answer.json()))
        talk.go_on(answer.json())
    return found


@pytest.mark.parametrize("kind", [Chat, Messages, Responses])
@pytest.mark.parametrize("name", ["script", "thinking_script"])
def test_each_prompt_begins_with_the_sampled_tokens_of_its_history(request, name, kind, tokenizer):
    server = request.getfixturevalue(name)
    chat = server.backend.chat(None)

    @fixed(20)
    @hypothesis.given(st.lists(st.sampled_from(ANSWERS), min_size=2, max_size=4))
    def check(texts):
        forks = chat.num_forks
        found = play(server, kind, texts)
        assert chat.num_forks == forks  # the same tokens could also be those of the same texts
        for text, (_, sampled) in zip(texts, found, strict=True):
            assert sampled[:-1] == tokenizer.encode(text)
        for (prompt, sampled), (later, _) in zip(found, found[1:], strict=False):
            assert later[: len(prompt) + len(sampled)] == prompt + sampled

    check()


@pytest.mark.parametrize("kind", [Messages, Responses])
def test_all_apis_have_the_same_prompts(script, kind):
    texts = [f"I look.\n{CALL}\n{CALL}", "Done.", "Bye."]
    assert play(script, kind, texts) == play(script, Chat, texts)


@pytest.mark.parametrize("kind", [Chat, Messages, Responses])
@pytest.mark.parametrize("text", ["12", "1.0", '{"n":1}', "null", "x"])
def test_a_parameter_that_is_a_text_stays_one_though_it_looks_like_json(tokenizer, kind, text):
    with serving_script(tokenizer, tool_parser="qwen3_coder") as server:
        (first, sampled), (later, _) = play(server, kind, [FUNCTION.format(text), "Done."])
        server.engine.texts[:] = [FUNCTION.format(text)]
        answer = server.web.post(kind.route, json=kind().body()).json()
    assert later[: len(first) + len(sampled)] == first + sampled
    assert kind().arguments(answer) == {"at": text}


@pytest.mark.parametrize("end", ["", "</code>", "</code>\n"])
def test_a_client_may_add_the_stop_string_to_the_answer(script, end):
    """The sampled tokens have it."""
    script.engine.texts[:] = ["look </code> and more", "Done."]
    chat = script.backend.chat(None)
    forks, history = chat.num_forks, [user(f"go {end}")]
    (before, sampled), (later, _) = (ask_to_stop(script, history, end) for _ in range(2))
    assert sampled == list(b"look </code>")
    assert later[: len(before) + len(sampled)] == before + sampled
    assert chat.num_forks == forks


@pytest.mark.parametrize("is_dropped", [True, False])
def test_an_answer_without_the_stop_string_replaces_one_that_ended_at_it(tokenizer, is_dropped):
    with serving_script(tokenizer, max_known=1 if is_dropped else 9) as server:
        server.engine.texts[:] = ["look</code>", "look", "Other.", "Done."]
        ask_to_stop(server, [user("go")], "")
        ask_to_stop(server, [user("go")], "", stop=None)  # the same text with other tokens
        ask_to_stop(server, [user("stay")], "")
        history = [user("go"), {"role": "assistant", "content": "look</code>"}, user("go on")]
        prompt, _ = ask_to_stop(server, history, "")
    assert "look</code>" in tokenizer.decode(prompt)


def ask_to_stop(server, history, end, stop=("</code>",)):
    """Extends a history by an answer with another end; returns the ids of prompt and answer."""
    body = {"model": MODEL, "messages": history, "stop": stop, "return_token_ids": True}
    answer = server.web.post("/v1/chat/completions", json=body).json()
    text = answer["choices"][0]["message"]["content"]
    history += [{"role": "assistant", "content": text + end}, user("go on")]
    return answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
