"""Scores of given texts through /v1/completions with `echo`, as evaluations ask for them."""

import contextlib
import http.client
import json

import numpy as np
import pytest

from agentgym_jax.serving import engine
from tests.serving.parts import CONTEXT
from tests.waiting import PATIENCE_S

TEXT = "/v1/completions"


def complete(server, prompt, **fields):
    body = {"prompt": prompt, "logprobs": 1, "return_token_ids": True} | fields
    answer = server.web.post(TEXT, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def score(server, prompt, **fields):
    """Returns the choices of a request that scores a prompt without sampling."""
    return complete(server, prompt, echo=True, max_tokens=0, **fields)["choices"]


@pytest.mark.parametrize("length", [2, 16, 17, 70])  # around the lengths of the programs
def test_scores_equal_the_log_probabilities_of_sampled_tokens(served, length):
    prompt = [1 + i % 50 for i in range(length)]
    (sampled,) = complete(served, prompt, max_tokens=20, seed=3)["choices"]
    (scored,) = score(served, prompt + sampled["token_ids"])
    expected = sampled["logprobs"]["token_logprobs"]
    found = scored["logprobs"]["token_logprobs"]
    assert found[0] is None and len(found) == length + len(expected)
    np.testing.assert_allclose(found[length:], expected, atol=1e-4)


def test_the_likeliest_tokens_are_those_of_greedy_sampling(served):
    (greedy,) = complete(served, "go", max_tokens=10, temperature=0)["choices"]
    (other,) = complete(served, "go", max_tokens=10, seed=1)["choices"]
    greedy, other = (
        [*choice["prompt_token_ids"], *choice["token_ids"]] for choice in (greedy, other)
    )
    for ids, is_greedy in ((greedy, True), (other, False)):
        (scored,) = score(served, ids)
        start = len(served.backend.tokenizer.encode("go"))
        logprobs = scored["logprobs"]
        best = [max(top, key=top.get) for top in logprobs["top_logprobs"][start:]]
        assert (best == logprobs["tokens"][start:]) is is_greedy


def test_an_echo_precedes_the_sampled_tokens(served):
    whole = complete(served, ["go north", "look"], echo=True, max_tokens=3, seed=0, n=2)
    plain = complete(served, ["go north", "look"], max_tokens=3, seed=0, n=2)
    scored = score(served, ["go north", "look"])
    for i, (choice, answer) in enumerate(zip(whole["choices"], plain["choices"], strict=True)):
        prompt = scored[i // 2]
        assert choice["text"] == prompt["text"] + answer["text"]
        for name in ("tokens", "token_logprobs"):
            parts = prompt["logprobs"][name] + answer["logprobs"][name]
            assert choice["logprobs"][name] == parts
        assert len(choice["logprobs"]["top_logprobs"]) == len(choice["logprobs"]["tokens"])
    assert whole["usage"] == plain["usage"]
    assert prompt["text"] == "look" and prompt["finish_reason"] == "length"


def test_a_single_token_and_an_echo_without_log_probabilities_have_no_scores(served):
    (one,) = score(served, [5])
    assert one["logprobs"]["token_logprobs"] == one["logprobs"]["top_logprobs"] == [None]
    (plain,) = score(served, "go", logprobs=None)
    assert plain["logprobs"] is None and plain["text"] == "go"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"echo": True, "stream": True}, "echo"),
        ({"echo": True, "prompt": [1] * CONTEXT}, "prompt"),
        *(
            ({"echo": True, "max_tokens": 0, "logprobs": logprobs, "prompt": prompt}, "prompt")
            for logprobs in (1, None)
            for prompt in ([""], [[]], [5, 10**6], [[5], [-1]])
        ),
    ],
)
def test_an_echo_that_cannot_be_served_is_refused_by_name(served, fields, param):
    answer = served.web.post(TEXT, json={"prompt": "x"} | fields)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


def test_a_text_that_cannot_be_scored_fails_alone(served, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("too long")

    request = json.dumps({"prompt": "x", "echo": True, "logprobs": 1, "max_tokens": 0})
    headers = {"Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.connect()
        first = connection.sock
        with monkeypatch.context() as patch:
            patch.setattr(engine, "score_tokens", fail)
            connection.request("POST", TEXT, request, headers)
            answer = connection.getresponse()
            assert answer.status == 500 and json.load(answer)["error"]["code"] == "internal"
        connection.request("POST", TEXT, request, headers)
        answer = connection.getresponse()
        assert answer.status == 200 and json.load(answer)["choices"][0]["text"] == "x"
        assert connection.sock is first  # the failure has not closed it
