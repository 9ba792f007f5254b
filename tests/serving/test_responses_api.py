"""OpenAI's Responses API with its own client: answers, streams and errors."""

import json

import pytest

from agentgym_jax.serving import wire
from agentgym_jax.serving.requests import NotServingError, OverloadedError, RequestError
from agentgym_jax.serving.responses_api import ResponsesRequest
from tests.serving.parts import CONTEXT, MODEL, user

ROUTE = "/v1/responses"
LOOK = [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}]
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "é 😀"}}\n</tool_call>'
ASK = {"model": MODEL, "input": "hi"}


def ask(server, **fields):
    return server.client().responses.create(**ASK | fields)


def test_an_answer_with_tool_calls_has_the_form_of_openai(fake):
    fake.backend.text = f"I look.\n{CALL}\n{CALL}"
    answer = ask(fake, tools=LOOK)
    message, *calls = answer.output
    assert (message.type, message.role, answer.output_text) == ("message", "assistant", "I look.")
    assert [(c.type, c.name, json.loads(c.arguments)) for c in calls] == [
        ("function_call", "look", {"at": "é 😀"})
    ] * 2
    assert calls[0].call_id != calls[1].call_id
    assert (answer.status, answer.incomplete_details, answer.error) == ("completed", None, None)
    usage, length = answer.usage, len(fake.backend.text.encode())
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (3, length, length + 3)


def test_a_conversation_is_translated_to_the_messages_of_a_chat():
    thinking = {"type": "reasoning_text", "text": "hm"}
    body = {
        "instructions": "Be kind.",
        "input": [
            {"role": "developer", "content": "x"},
            user([{"type": "input_text", "text": "hi"}]),
            {"type": "reasoning", "id": "r", "summary": [], "content": [thinking]},
            {"type": "message", "role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "x", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "x", "output": "a door"},
        ],
        "tools": LOOK,
    }
    request = wire.parse(ResponsesRequest, json.dumps(body).encode())
    function = {"name": "look", "arguments": "{}"}
    assert request.plain_messages() == [
        {"role": "system", "content": "Be kind."},
        {"role": "system", "content": "x"},
        user("hi"),
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "x", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "a door", "tool_call_id": "x"},
    ]
    plain = {"name": "look", "parameters": {"type": "object"}}
    assert request.plain_tools() == [{"type": "function", "function": plain}]


@pytest.mark.parametrize("fields", [{}, {"tools": LOOK, "tool_choice": "none"}])
def test_without_tools_a_call_is_text(fake, fields):
    fake.backend.text = CALL
    assert ask(fake, **fields).output_text == CALL


def test_an_answer_that_is_cut_is_incomplete(served):
    cut = {"max_output_tokens": 3, "extra_body": {"seed": 5}}
    answer = ask(served, **cut)
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.output[0].status == "incomplete"
    *_, item, last = ask(served, **cut, stream=True)
    assert item.item == last.response.output[0]
    assert (last.type, last.response.status) == ("response.incomplete", "incomplete")


def test_a_stream_has_the_events_of_openai(thinking_script):
    text = f"<think>hm</think>I look.\n{CALL}"
    thinking_script.engine.texts = [text]
    found = list(ask(thinking_script, tools=LOOK, stream=True))
    assert [event.sequence_number for event in found] == list(range(len(found)))
    added, done = "response.output_item.added", "response.output_item.done"
    parts = "response.content_part.added", "response.content_part.done"
    names = [event.type for event in found]
    texts = [
        [added, parts[0], f"response.{kind}.delta", f"response.{kind}.done", parts[1], done]
        for kind in ("reasoning_text", "output_text")
    ]
    calls = "response.function_call_arguments"
    assert [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n] == [
        *("response.created", "response.in_progress", *texts[0], *texts[1]),
        *(added, f"{calls}.delta", f"{calls}.done", done, "response.completed"),
    ]
    finished = [event.item for event in found if event.type == done]
    assert finished == found[-1].response.output


def test_an_empty_stream_has_a_message(fake):
    fake.backend.text = ""
    *_, item, last = ask(fake, stream=True)
    assert item.item.content[0].text == last.response.output_text == ""


def test_a_stream_has_the_response_of_the_whole_answer(thinking_script, served):
    text = f"<think>hm</think>I look.\n{CALL}"
    thinking_script.engine.texts = [text, text]
    for server in (thinking_script, served):
        fields = ASK | {"tools": LOOK, "extra_body": {"seed": 3}}
        whole = server.client().responses.create(**fields)
        with server.client().responses.stream(**fields) as stream:
            joined = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        assert joined == whole.output_text


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": "Be kind.", "store": True, "include": ["reasoning.encrypted_content"]},
        {"temperature": 0.5, "top_p": 0.9, "metadata": {}, "user": "me", "truncation": "disabled"},
        {"text": {"format": {"type": "text"}}, "reasoning": {"summary": "auto"}},
        {"parallel_tool_calls": True, "previous_response_id": None, "background": False},
        {"input": [{"type": "message", "role": "developer", "content": "x"}, user("hi")]},
        {"input": [user([{"type": "input_text", "text": "hi"}])]},
        {"input": [{"type": "reasoning", "id": "x", "summary": []}, user("hi")]},
    ],
)
def test_fields_of_usual_clients_are_accepted(served, fields):
    answer = served.web.post(ROUTE, json=ASK | {"max_output_tokens": 2} | fields)
    assert answer.status_code == 200, answer.text


def item(**fields):
    return {"input": [fields]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": "x" * CONTEXT}, "input"),
        (item(role="assistant", content="x"), "input"),
        (item(role="robot", content="x"), "input.0.role"),
        (item(role="user", content=5), "input.0.content"),
        (item(role="user", content=[{"type": "input_image"}]), "input.0.content"),
        (item(type="item_reference", id="x"), "input.0.type"),
        (item(type="function_call", call_id="x", name="look"), "input.0.arguments"),
        (item(type="function_call", call_id="x", name="", arguments="{}"), "input.0.name"),
        (item(type="function_call_output", output="x"), "input.0.call_id"),
        (item(type="reasoning", encrypted_content="x"), "input.0.encrypted_content"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text"),
        ({"text": {"format": {"type": "grammar"}}}, "text"),
        ({"guided_choice": ["x"]}, "guided_choice"),
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"text": {"format": "json_object"}}, "text"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"tools": [{"type": "function"}]}, "tools.0.type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "look"}}, "tool_choice"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"stop": "x"}, "stop"),
        ({"n": 2}, "n"),
        ({"model": "other"}, "model"),
    ],
)
def test_wrong_fields_are_named(served, fields, param):
    answer = served.web.post(ROUTE, json=ASK | fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OverloadedError("busy"), "RateLimitError"),
        (NotServingError("later"), "InternalServerError"),
        (RequestError("no"), "BadRequestError"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_errors_of_the_policy_become_errors_of_the_client(fake, openai, error, kind, stream):
    fake.backend.errors = [error]
    with pytest.raises(getattr(openai, kind)):
        ask(fake, stream=stream)


def test_a_stream_that_fails_ends_with_a_failed_response(fake):
    fake.backend.text = None
    stream = iter(ask(fake, stream=True))
    assert next(stream).type == "response.created"
    fake.backend.open.pop().set_exception(NotServingError("the policy is updated"))
    *_, last = stream
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert last.response.error.message == "the policy is updated"
