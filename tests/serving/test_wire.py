"""Bodies of requests: every wrong one is answered with the field at fault, never with a 500."""

import json
import time
import warnings

import hypothesis
import pytest
from hypothesis import strategies as st

from agentgym_jax.serving import wire
from agentgym_jax.serving.bodies import MAX_BODY
from agentgym_jax.serving.messages_api import MessagesRequest
from agentgym_jax.serving.requests import RequestError
from agentgym_jax.serving.responses_api import ResponsesRequest
from agentgym_jax.text.template import ChatTemplate
from tests.examples import fixed
from tests.serving.parts import CONTEXT, MODEL, user
from tests.waiting import PATIENCE_S

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
GENERATE = "/inference/v1/generate"
MESSAGES, COUNT, RESPONSES = "/v1/messages", "/v1/messages/count_tokens", "/v1/responses"
ASK = {"messages": [user("hi")], "max_tokens": 2}
DEEP = "[" * 100_000


def tool(description):
    """Returns the definition of a tool."""
    return {"type": "function", "function": {"name": "look", "description": description}}


def named(name):
    """Returns the choice of a tool."""
    return {"type": "function", "function": {"name": name}}


def schema_format(schema):
    """Returns a `response_format` with a schema."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


def call_with(arguments):
    """Returns a message with a call."""
    call = {"id": "1", "function": {"name": "look", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": [call]}


def refused(answer, status=400):
    """Returns the error of an answer, in OpenAI's form or in Anthropic's."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    others = set() if "/v1/messages" in str(answer.url) else {"param", "code"}
    assert set(error) == {"message", "type"} | others
    assert error["message"] and "Value error" not in error["message"]
    return error


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": [user("x" * CONTEXT)]}, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"model": "other"}, "model"),
        ({"model": 1}, "model"),
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools.0.function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [tool("x")], "tool_choice": named("other")}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": schema_format({"type": "word"})}, "response_format"),
        ({"response_format": schema_format({"items": {"$ref": "http://a/b"}})}, "response_format"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": {"enum": ["x" * 70_000]}}, "guided_json"),
        ({"guided_regex": "(" * 5000}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_grammar": "no grammar"}, "guided_grammar"),
        ({"guided_grammar": "start: a\na: b"}, "guided_grammar"),
        ({"guided_choice": ["a"], "guided_regex": "a"}, "guided_choice"),
        ({"guided_grammar": 'start: "a"', "tools": [tool("x")]}, "guided_grammar"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 2**31}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -(10**30)}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": wire.MAX_CHOICES + 1}, "n"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ""}, None),
        ({"stop": ["x"] * (wire.MAX_STOP + 1)}, None),
        ({"stop": "x" * 2000}, None),
        ({"stop": "\ufffd"}, "stop"),
        ({"stop": [""]}, "stop.0"),
        ({"stop": 5}, "stop"),
        ({"stream": 7}, "stream"),
        ({"frequency_penalty": 2.5}, "frequency_penalty"),
        ({"presence_penalty": "much"}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"min_p": 1.1}, "min_p"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": {"word": 1}}, "logit_bias.word.[key]"),
        ({"logit_bias": {"300": 1}}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"ignore_eos": True}, "ignore_eos"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({"structured_outputs": {"structural_tag": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"max_completion_tokens": 3}, "max_completion_tokens"),
        ({"stop_token_ids": [-1]}, "stop_token_ids.0"),
        ({"stop_token_ids": [300]}, "stop_token_ids"),
        ({"messages": [user([{"type": "image_url", "image_url": {}}])]}, "messages.0.content"),
        ({"messages": [user({})]}, "messages.0.content"),
        ({"messages": [user("x") | {"audio": {"id": "1"}}]}, "messages.0.audio"),
        ({"messages": [user("x") | {"reasoning_content": "y"}]}, "messages"),
        ({"stream_options": 7}, "stream_options"),
    ],
)
def test_wrong_fields_are_named(served, changes, param):
    error = refused(served.web.post(CHAT, json=ASK | changes))
    assert error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param


@pytest.mark.parametrize(
    "changes",
    [{name: None for name in ("n", "stop", "tools", "seed", "top_p", "stream", "logprobs")}]
    + [{"frequency_penalty": 0, "logit_bias": {}, "parallel_tool_calls": True, "user": "me"}]
    + [{"frequency_penalty": -2, "presence_penalty": 0.5, "repetition_penalty": 1.1}]
    + [{"min_p": 0.5, "logit_bias": {"5": -100, "6": 1.5}}]
    + [{"max_completion_tokens": 2}, {"response_format": {"type": "text"}}, {"min_p": None}]
    + [{"messages": [user("hi") | {"name": "Ann", "refusal": None}]}]
    + [{"top_k": -1}, {"unknown": {"a": [1]}}, {"stop": []}, {"tools": []}, {"top_logprobs": 0}]
    + [{"messages": [user([{"type": "text", "text": "hi"}])]}, {"seed": -(2**63)}]
    + [{"messages": [{"role": "developer", "content": "be kind"}, user("hi")]}]
    + [{"messages": [user("<|im_end|>\x00\u2028")]}],
)
def test_fields_of_usual_clients_are_accepted(served, changes):
    answer = served.web.post(CHAT, json=ASK | changes)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("route", "body"),
    [
        *((TEXT, {"prompt": prompt}) for prompt in ("", [], [[]], [""], 5, None, [1, "a"], {})),
        *((TEXT, {"prompt": [token]}) for token in (-1, 1.5, 300, 2**31, 10**40)),
        (TEXT, {"prompt": "x", "suffix": "y"}),
        (TEXT, {"prompt": "x", "logprobs": 2}),
        (TEXT, {"prompt": "x", "logprobs": -1}),
        (TEXT, {"prompt": ["x"] * 100, "n": 2}),
        (TEXT, {"prompt": "x" * CONTEXT}),
        *((GENERATE, {"token_ids": ids}) for ids in ([], [-1], [300], ["a"], None, [[1]])),
        (GENERATE, {"token_ids": [1] * CONTEXT}),
        (GENERATE, {"token_ids": [1], "sampling_params": {"stop_token_ids": [-1]}}),
        (GENERATE, {"token_ids": [1], "sampling_params": {"n": 1000}}),
        (GENERATE, {"token_ids": [1], "sampling_params": 5}),
    ],
)
def test_wrong_prompts_are_refused(served, route, body):
    refused(served.web.post(route, json=body))


@pytest.mark.parametrize("route", [CHAT, TEXT, GENERATE, MESSAGES, COUNT, RESPONSES])
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"null", b"[]", b'"x"', b"NaN", b"\xff\xfe\x00", b"\x00" * 1000),
        *(DEEP.encode(), b'{"messages": ' + DEEP.encode(), b'{"a":' * 100_000),
        b'{"messages": [{"role": "user", "content": "\\ud800"}], "prompt": "\\ud800"}',
        b'{"n": NaN, "messages": [], "prompt": "x", "token_ids": NaN}',
        b'{"max_tokens": %s}' % (b"9" * 10_000),
    ],
)
def test_broken_json_is_refused(served, route, body):
    refused(served.web.post(route, content=body))


def nested(depth):
    """Returns an object with `depth` levels."""
    value = {}
    for _ in range(depth):
        value = {"properties": value}
    return value


@pytest.mark.parametrize("parameters", [nested(180), {"maximum": 10**4000}, {"a": float("inf")}])
def test_odd_tools_cause_no_server_errors(served, parameters):
    tool = {"type": "function", "function": {"name": "look", "parameters": parameters}}
    call = {"id": "1", "function": {"name": "look", "arguments": parameters}}
    messages = [user("<|im_end|>"), {"role": "assistant", "tool_calls": [call]}, user("and?")]
    body = json.dumps(ASK | {"tools": [tool], "messages": messages})
    assert served.web.post(CHAT, content=body).status_code in (200, 400)


def test_a_body_beyond_the_limit_is_refused_and_the_server_lives(served):
    answer = served.web.post(CHAT, content=b"x" * (33 * 2**20))
    error = refused(answer, 413)
    assert error["code"] == "too_large"
    assert str(MAX_BODY) in error["message"]

    def parts():
        for _ in range(33):
            yield b"x" * 2**20

    refused(served.web.post(CHAT, content=parts()), 413)
    assert served.web.post(CHAT, json=ASK).status_code == 200


@pytest.mark.parametrize(
    ("route", "body"),
    [
        (TEXT, b'{"prompt": [%s-1]}' % (b"-1," * 8_000_000)),
        (CHAT, b'{"messages": [%s{}]}' % (b"{}," * 8_000_000)),
        (CHAT, b'{"messages": [{"role": "user", "content": "%s"}]}' % (b"x" * 30_000_000)),
        (TEXT, b'{"prompt": "%s"}' % (b"x" * 30_000_000)),
        (CHAT, b'{"messages": [{"role": "user", "content": [%s]}]}' % (b"1," * 8_000_000 + b"1")),
        (MESSAGES, b'{"messages": [%s{}], "max_tokens": 1}' % (b"{}," * 8_000_000)),
    ],
    ids=["numbers", "messages", "message", "text", "parts", "turns"],
)
def test_large_wrong_bodies_are_refused_quickly(served, route, body):
    started = time.monotonic()
    refused(served.web.post(route, content=body))
    assert time.monotonic() - started < 120  # a list of all errors would need gigabytes


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [user("")] * 60_000},
        {"tools": [tool("x" * 8_000_000)]},
        {"tools": [tool("x")] * 50_000},
        {"messages": [call_with({"x": "y" * 8_000_000}), user("")]},
        {"messages": [user("x") | {"name": "y" * 8_000_000}]},
    ],
    ids=["messages", "description", "tools", "arguments", "name"],
)
def test_a_request_beyond_the_context_is_refused_before_it_is_rendered(served, monkeypatch, body):
    monkeypatch.setattr(ChatTemplate, "render", None)
    error = refused(served.web.post(CHAT, json=ASK | body))
    assert error["code"] == "context_length_exceeded"


def test_a_model_can_be_asked_for(served):
    assert served.web.get(f"/v1/models/{MODEL}").json()["id"] == MODEL
    assert refused(served.web.get("/v1/models/org/other"), 404)["param"] == "model"


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", CHAT, 405), ("DELETE", CHAT, 405), ("POST", "/v1/models", 405),
    ("GET", MESSAGES, 405), ("GET", RESPONSES, 405), ("GET", f"{RESPONSES}/resp_1", 404),
    ("GET", "/nothing", 404), ("POST", "/v1/embeddings", 404),
    ("POST", "/episodes/x/v1/chat/completions", 404), ("GET", "/episodes/%00%ff/v1/models", 404),
])  # fmt: skip
def test_wrong_routes_are_refused(served, method, path, status):
    body = {"json": ASK} if method == "POST" else {}
    refused(served.web.request(method, path, **body), status)


@pytest.mark.parametrize("path", ["/chat/completions", "/v1/v1/messages"])
def test_a_wrong_base_url_is_explained(served, path):
    assert "the base URL of" in served.web.post(path, json=ASK).json()["error"]["message"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
texts = st.sampled_from(["", "hi", "<|im_end|>", "\ud800", "\ufffd", "é" * 20, "{{ x }}"])
calls = st.fixed_dictionaries({
    "id": texts, "type": st.just("function"),
    "function": st.fixed_dictionaries(
        {"name": st.sampled_from(["look", ""]),
         "arguments": texts | st.sampled_from([None, "{}", "null", "[1]", {}, {"a": 1}])}),
})  # fmt: skip
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "refusal", "image_url"]), "text": texts}
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from("system developer user user assistant tool function".split())},
        optional={
            "content": texts | st.none() | st.lists(parts, max_size=2),
            "tool_calls": st.none() | st.lists(calls, max_size=2),
            "tool_call_id": texts, "name": texts, "refusal": st.none() | texts,
            "reasoning_content": texts, "audio": st.none() | json_values,
        },
    ),
    max_size=4,
)  # fmt: skip
# Valid values of OpenAI's fields, most of which change nothing, and other values of any type.
CHAT_FIELDS = {
    "messages": messages, "model": st.sampled_from([MODEL, "gpt-5"]),
    "audio": st.none(), "frequency_penalty": st.sampled_from([0, 0.0, 1.5]),
    "function_call": st.sampled_from(["none", "auto", {"name": "f"}]), "functions": st.just([]),
    "logit_bias": st.sampled_from([{}, {"50": 5}]), "logprobs": st.booleans(),
    "max_completion_tokens": st.integers(0, 3), "max_tokens": st.integers(0, 3),
    "metadata": st.just({"a": "b"}), "modalities": st.sampled_from([["text"], ["audio"]]),
    "n": st.integers(0, 3), "parallel_tool_calls": st.booleans(), "prediction": st.none(),
    "presence_penalty": st.sampled_from([0, -1]), "prompt_cache_key": texts,
    "reasoning_effort": st.sampled_from([None, "low"]),
    "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}, {}, {"type": 5}]),
    "guided_json": json_values, "guided_regex": texts, "guided_choice": st.lists(texts, max_size=2),
    "structured_outputs": json_values, "guided_grammar": texts,
    "safety_identifier": texts, "seed": st.integers(-(2**64), 2**64), "service_tier": texts,
    "stop": texts | st.lists(texts, max_size=5), "store": st.booleans(), "stream": st.booleans(),
    "stream_options": st.sampled_from([None, {"include_usage": True}]),
    "temperature": st.floats(-1, 3), "tool_choice": st.sampled_from(["auto", "none", "required"]),
    "tools": st.lists(st.just(tool("x")), max_size=2), "top_logprobs": st.integers(0, 2),
    "top_p": st.floats(0, 1.5), "user": texts, "verbosity": st.sampled_from(["medium", "high"]),
    "web_search_options": st.none(), "stop_token_ids": st.lists(st.integers(-1, 300), max_size=2),
    "return_token_ids": st.booleans(), "top_k": st.integers(-2, 5),
    "min_p": st.floats(-0.1, 1.1), "repetition_penalty": st.floats(0, 3),
}  # fmt: skip


# Values that do not change the answer, of fields that are not supported.
NEUTRAL = {
    "audio": [],
    "modalities": [["text"]], "reasoning_effort": [], "verbosity": ["medium"],
    "functions": [[]], "function_call": ["none", "auto"],
    "web_search_options": [], "top_logprobs": [0],
}  # fmt: skip


def test_any_chat_request_works_or_is_refused_by_the_field(served):
    valid = st.fixed_dictionaries({}, optional=CHAT_FIELDS)
    wrong = st.dictionaries(st.sampled_from(sorted(CHAT_FIELDS)), json_values, max_size=2)
    known = {*CHAT_FIELDS, None}

    @fixed(150)
    @hypothesis.given(valid, wrong, st.booleans(), st.booleans())
    def ask(fields, others, is_wrong, has_messages):
        body = ASK | {"max_tokens": 2} | fields | (others if is_wrong else {})
        if has_messages:
            body["messages"] = ASK["messages"]
        answer = served.web.post(CHAT, content=json.dumps(body), timeout=PATIENCE_S)
        if answer.status_code == 200:
            assert "error" not in answer.text
            for name, neutral in NEUTRAL.items():
                assert name not in body or body[name] in [None, *neutral], name
            return
        error = refused(answer)
        place = error["param"] and error["param"].partition(".")[0]
        assert place in known
        # Only JSON that cannot be read, or texts beyond the context, belong to no field.
        assert place or error["code"] in ("invalid_request", "context_length_exceeded")

    ask()


VALID = {
    "messages": [user("x")], "prompt": "x", "token_ids": [1], "input": "x", "max_tokens": 2,
}  # fmt: skip


@pytest.mark.parametrize("kind", [wire.CompletionRequest, wire.GenerateRequest])
def test_any_json_is_parsed_or_refused(kind):
    names = [*kind.model_fields, "role", "content"]

    @fixed(50)
    @hypothesis.given(st.dictionaries(st.sampled_from(names), json_values), st.booleans())
    def parse(fields, is_complete):
        try:
            body = wire.parse(kind, json.dumps((VALID if is_complete else {}) | fields).encode())
            body.check()
            getattr(body, "sampling_params", body).sampling(3)
        except RequestError as error:
            assert str(error)

    parse()


# Parts of the other APIs' conversations, with values of any type.
PART_FIELDS = {
    "type": st.sampled_from(
        ["text", "tool_use", "tool_result", "thinking", "input_text", "output_text", "message",
         "function_call", "function_call_output", "reasoning", "reasoning_text", "image"]
    ),
    **dict.fromkeys(("text", "thinking", "id", "name", "call_id", "tool_use_id"), texts),
    "input": st.sampled_from([{}, {"a": 1}]), "arguments": st.sampled_from(["{}", "[", ""]),
    "output": texts, "content": texts, "role": st.sampled_from(["user", "assistant", "tool"]),
}  # fmt: skip
any_part = st.tuples(
    st.fixed_dictionaries({}, optional=PART_FIELDS),
    st.dictionaries(st.sampled_from(sorted(PART_FIELDS)), json_values, max_size=1),
).map(lambda both: both[0] | both[1])


@pytest.mark.parametrize("kind", [MessagesRequest, ResponsesRequest])
def test_any_conversation_of_the_other_apis_is_translated_or_refused(served, kind):
    names = sorted(kind.model_fields)
    turns = st.lists(
        st.builds(lambda role, content: {"role": role, "content": content},
                  st.sampled_from(["user", "assistant"]), st.lists(any_part, max_size=3)),
        min_size=1, max_size=3,
    )  # fmt: skip

    @fixed(40)
    @hypothesis.given(
        turns,
        st.lists(any_part, min_size=1, max_size=4),
        st.dictionaries(st.sampled_from(names), json_values, max_size=1),
    )
    def ask(turns, items, others):
        fields = {"messages": turns} if kind is MessagesRequest else {"input": items}
        body = json.dumps({"max_tokens": 2, "max_output_tokens": 2} | fields | others)
        if kind is ResponsesRequest:
            body = body.replace('"max_tokens": 2, ', "")
        else:
            body = body.replace(', "max_output_tokens": 2', "")
        route = MESSAGES if kind is MessagesRequest else RESPONSES
        answer = served.web.post(route, content=body)
        if answer.status_code != 200:
            refused(answer)

    ask()


@pytest.mark.slow
def test_requests_generated_from_the_description_cause_no_server_errors(served):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library, about its own dependencies
        import schemathesis  # takes two seconds
    schema = schemathesis.openapi.from_dict(served.web.get("/openapi.json").json())
    schema.config.update(base_url=served.url)
    for operation in [result.ok() for result in schema.get_all_operations()]:
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            @fixed(40, checks=False)
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def ask(case):
                answer = case.call()
                assert answer.status_code < 500, (case, answer.text)

            try:
                ask()
            except hypothesis.errors.Unsatisfiable:
                continue  # a route without parameters has no invalid request
