"""Answers in the form that a request demands: JSON, other texts and forced tool calls."""

import json

import pytest

from agentgym_jax.serving.constraints import make_grammar, read_constraint
from agentgym_jax.text.grammars import Grammars
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.text.tool_calls import parse_tool_calls
from agentgym_jax.text.tool_chat import ToolForm
from tests.serving.parts import serving_model, user

CHAT, TEXT, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
STOP = 260
SCHEMA = {
    "type": "object",
    "properties": {
        "size": {"$ref": "#/$defs/size"},
        "colours": {"type": "array", "items": {"enum": ["red", "blue"]}, "maxItems": 2},
    },
    "required": ["size", "colours"],
    "additionalProperties": False,
    "$defs": {"size": {"type": "integer", "minimum": 0, "maximum": 99}},
}
DIRECTION = {"enum": ["north", "south"]}


def tool(name, properties, required=(), **others):
    parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    parameters |= {"required": list(required)} | others
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("look", {"direction": DIRECTION}, ["direction"]), tool("wait", {})]


@pytest.fixture(scope="module")
def wide(compiled_fastest, policy, params, tokenizer):
    """A server whose context has room for tools."""
    with serving_model(policy, params, tokenizer, rows=3, context=1024) as server:
        yield server


def chat(server, **fields):
    """Returns the choices of an answer."""
    body = {"messages": [user("hi")], "max_tokens": 250, "seed": 2, "logprobs": True} | fields
    answer = server.web.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_answers_have_the_form_of_the_schema(wide, temperature):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    for choice in chat(wide, response_format=form, n=4, temperature=temperature):
        assert choice["finish_reason"] == "stop"
        found = json.loads(choice["message"]["content"])
        assert set(found) == {"size", "colours"}
        assert 0 <= found["size"] <= 99
        assert set(found["colours"]) <= {"red", "blue"}


@pytest.mark.parametrize(
    ("fields", "is_right"),
    [
        ({"response_format": {"type": "json_object"}}, lambda t: isinstance(json.loads(t), dict)),
        ({"guided_json": json.dumps({"const": [1, None]})}, lambda t: json.loads(t) == [1, None]),
        ({"guided_regex": "[0-9]{2}/[ab]"}, lambda t: t[2] == "/" and t[:2].isdigit()),
        ({"guided_choice": ["fire", 'a "b"\n']}, lambda t: t in ("fire", 'a "b"\n')),
        ({"guided_grammar": 'start: "x" y\ny: "1" | "2"'}, lambda t: t in ("x1", "x2")),
        ({"structured_outputs": {"choice": ["é"], "regex": None}}, lambda t: t == "é"),
        ({"structured_outputs": {"json_object": True}}, lambda t: isinstance(json.loads(t), dict)),
    ],
)
def test_every_kind_of_form_holds(wide, fields, is_right):
    for choice in chat(wide, n=2, temperature=0.8, logit_bias={"125": 5}, **fields):
        assert choice["finish_reason"] == "stop"
        assert is_right(choice["message"]["content"])


@pytest.mark.parametrize("route", [TEXT, GENERATE])
def test_routes_for_tokens_obey_forms(wide, route):
    fields = {"guided_choice": ["yes"], "max_tokens": 9}
    body = {"prompt": [1, 2], "return_token_ids": True, "logprobs": 1} | fields
    if route == GENERATE:
        body = {"token_ids": [1, 2], "sampling_params": fields}
    (choice,) = wide.web.post(route, json=body).json()["choices"]
    assert choice["token_ids"][:3] == list(b"yes")
    if route == TEXT:
        # Forced tokens have the probability 1: the mask precedes the log-probability.
        assert choice["logprobs"]["token_logprobs"][:3] == [0, 0, 0]


def test_a_forced_call_is_one_of_the_tools_with_its_parameters(wide):
    named = {"type": "function", "function": {"name": "look"}}
    for choice in chat(wide, tools=TOOLS, tool_choice=named, n=2):
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == "look"
        assert json.loads(call["function"]["arguments"])["direction"] in DIRECTION["enum"]
        assert choice["finish_reason"] == "tool_calls"
    names = set()
    for seed in range(4):
        (choice,) = chat(wide, tools=TOOLS, tool_choice="required", seed=seed, temperature=3)
        calls = choice["message"]["tool_calls"]
        names |= {call["function"]["name"] for call in calls}
    assert names == {"look", "wait"}


@pytest.mark.parametrize(
    "choice", [{"type": "any"}, {"type": "tool", "name": "look"}], ids=["any", "named"]
)
def test_the_messages_api_forces_calls(wide, choice):
    tools = [
        {"name": "look", "input_schema": TOOLS[0]["function"]["parameters"]},
        {"name": "wait", "input_schema": TOOLS[1]["function"]["parameters"]},
    ]
    body = {"messages": [user("hi")], "max_tokens": 250, "tools": tools, "tool_choice": choice}
    answer = wide.web.post("/v1/messages", json=body).json()
    assert answer["stop_reason"] == "tool_use"
    names = {block["name"] for block in answer["content"]}
    assert names <= ({"look"} if "name" in choice else {"look", "wait"})


def test_the_responses_api_forces_calls_and_formats(wide):
    def ask(**fields):
        body = {"input": "hi", "max_output_tokens": 250, "seed": 2} | fields
        answer = wide.web.post("/v1/responses", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    for choice in ("required", {"type": "function", "name": "wait"}):
        calls = ask(tools=tools, tool_choice=choice)["output"]
        assert {call["type"] for call in calls} == {"function_call"}
        assert {call["name"] for call in calls} <= {"look", "wait"}
    assert {call["name"] for call in calls} == {"wait"}
    form = {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}
    answer = ask(text={"format": form})
    assert set(json.loads(answer["output"][0]["content"][0]["text"])) == {"size", "colours"}
    assert answer["text"]["format"] == form


def test_a_stream_has_the_same_calls(wide):
    fields = {"tools": TOOLS, "tool_choice": "required", "stream": True}
    body = {"messages": [user("hi")], "max_tokens": 250, "seed": 2} | fields
    text = wide.web.post(CHAT, json=body).text
    (choice,) = chat(wide, **{**fields, "stream": False})
    for call in choice["message"]["tool_calls"]:
        assert call["function"]["name"] in text
    assert '"finish_reason": "tool_calls"' in text


def test_a_grammar_that_fails_ends_only_its_own_answer(wide):
    body = {"messages": [user("hi")], "guided_regex": "(a?){2000}a{2000}"}
    answer = wide.web.post(CHAT, json=body)
    assert answer.status_code == 400
    assert "grammar cannot continue" in answer.json()["error"]["message"]
    assert chat(wide, guided_choice=["a"])[0]["message"]["content"] == "a"


def accepts(form, tool_form, text):
    """Returns True if a grammar allows exactly this text."""
    tokenizer = byte_tokenizer()
    matcher = Grammars(tokenizer, [STOP], tokenizer.vocab_size).compile(
        make_grammar(form, tool_form)
    )
    for token in [*text.encode(), STOP]:
        if not matcher.allowed()[token // 32] >> (token % 32) & 1:
            return False
        matcher.advance(token)
    return True


def function_call(*parameters):
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function=go>\n{values}</function>\n</tool_call>"


def json_call(arguments, key="arguments"):
    return f'{{"name": "go", "{key}": {json.dumps(arguments)}}}'


GO = tool(
    "go",
    {
        "to": {"$ref": "#/$defs/place"},
        "how": {"type": "string"},
        "speed": DIRECTION,
        "if": {"type": "string", "enum": ["", "1", None]},
        "by": {"type": "string", "const": "foot"},
    },
    ["to"],
    **{"$defs": {"place": {"type": "integer"}}},
)


@pytest.mark.parametrize(
    ("tool_form", "right", "wrong"),
    [
        (
            ToolForm(arguments=""),
            [
                function_call(("to", 5)),
                function_call(("to", 5), ("how", "by <b>\n</par"), ("speed", "north")),
                function_call(("to", 5), ("if", ""), ("by", "foot")),
                function_call(("to", 5)) + "\n" + function_call(("to", 6)),
            ],
            [
                function_call(),
                function_call(("to", "x")),
                function_call(("to", 5), ("speed", "up")),
                function_call(("to", 5), ("if", "2")),
                function_call(("to", 5), ("by", "car")),
            ],
        ),
        (
            ToolForm(),
            [
                f"<tool_call>\n{json_call({'to': 5})}\n</tool_call>",
                "\n".join([f"<tool_call>{json_call({'to': 5, 'how': 'x'})}</tool_call>"] * 2),
            ],
            [json_call({"to": 5}), f"<tool_call>\n{json_call({'to': 'x'})}\n</tool_call>"],
        ),
        (
            ToolForm("", "", "parameters"),
            [json_call({"to": 5}, "parameters")],
            [json_call({"to": 5}), json_call({"how": "x"}, "parameters")],
        ),
        (
            ToolForm("[TOOL_CALLS]", "", is_list=True),
            [
                f"[TOOL_CALLS][{json_call({'to': 5})}]",
                f"[TOOL_CALLS][{json_call({'to': 5})}, {json_call({'to': 6, 'how': 'x'})}]",
            ],
            [f"[TOOL_CALLS]{json_call({'to': 5})}", f"[TOOL_CALLS][{json_call({'to': 'x'})}]"],
        ),
    ],
    ids=["function", "tagged", "bare", "list"],
)
def test_calls_have_the_form_of_the_model(tool_form, right, wrong):
    form = read_constraint({}, [GO], "required")
    for text in right:
        assert accepts(form, tool_form, text), text
        calls = parse_tool_calls(text, tool_form)[1]
        assert {json.loads(call["arguments"])["to"] for call in calls} <= {5, 6}
    check_single(tool_form, right)
    for text in wrong:
        assert not accepts(form, tool_form, text), text


def check_single(tool_form, texts):
    """Checks that no more than one call is allowed, if at most one is."""
    forced, free = (
        read_constraint({}, [GO], choice, is_parallel=False) for choice in ("required", "auto")
    )
    for text in texts:
        is_single = len(parse_tool_calls(text, tool_form)[1]) == 1
        assert accepts(forced, tool_form, text) == is_single, text
        assert accepts(free, tool_form, text) == is_single, text
        assert accepts(free, tool_form, f"I go.\n{text}") == is_single, text
    assert accepts(free, tool_form, "I stay.")
    assert not accepts(forced, tool_form, "I stay.")


def test_with_tools_that_may_be_called_an_answer_is_a_text_or_calls():
    form = read_constraint({"guided_choice": ["stay"]}, [GO], "auto")
    call = f"<tool_call>\n{json_call({'to': 5})}\n</tool_call>"
    assert accepts(form, ToolForm(), "stay")
    assert accepts(form, ToolForm(), call)
    assert not accepts(form, ToolForm(), "go")
    assert not accepts(read_constraint({"guided_choice": ["stay"]}, [GO], "none"), ToolForm(), call)
