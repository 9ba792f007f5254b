"""Penalties, biases and min-p of requests, on every route that samples."""

import numpy as np
import pytest

from tests.serving.parts import user

CHAT, TEXT, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
PLAIN = {"messages": [user("hello")], "max_tokens": 30, "seed": 5}
BYTES = [65, 66, 67]
ONLY_ABC = {str(byte): 100 for byte in BYTES}


def sample(served, route, fields):
    """Returns the sampled ids and their log-probabilities."""
    fields = {"max_tokens": 12, "seed": 1, "return_token_ids": True} | fields
    if route == GENERATE:
        body = {"token_ids": [1, 2], "sampling_params": fields}
    elif route == TEXT:
        body = fields | {"prompt": [1, 2], "logprobs": 1}
    else:
        body = fields | {"messages": [user("hi")], "logprobs": True}
    answer = served.web.post(route, json=body)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    found = choice["logprobs"]
    if route == TEXT:
        return choice["token_ids"], found["token_logprobs"]
    return choice["token_ids"], [token["logprob"] for token in found["content"]]


@pytest.mark.parametrize("route", [CHAT, TEXT, GENERATE])
def test_every_route_obeys_biases_and_penalties(served, route):
    tokens, logprobs = sample(served, route, {"logit_bias": ONLY_ABC})
    assert len(tokens) == 12 and set(tokens) <= set(BYTES)
    assert max(logprobs) < -0.1  # the log-probabilities are those after the bias

    bias = {"65": 90, "66": 89, "67": 88}
    tokens, _ = sample(served, route, {"logit_bias": bias, "temperature": 0})
    assert tokens == [65] * 12
    penalised = {"logit_bias": bias, "temperature": 0, "frequency_penalty": 2}
    tokens, _ = sample(served, route, penalised)
    assert np.bincount(tokens, minlength=68)[65:].tolist() == [5, 4, 3]

    likeliest, _ = sample(served, route, {"temperature": 0})
    assert sample(served, route, {"temperature": 1, "min_p": 1})[0] == likeliest


def test_the_repetition_penalty_counts_the_prompt(served):
    body = {"prompt": [65] * 3, "max_tokens": 1, "temperature": 0, "return_token_ids": True}
    small = {"logit_bias": {"65": 0.01, "66": 0.01}, "repetition_penalty": 100}
    answers = [
        served.web.post(TEXT, json=body | {"logprobs": 1} | fields).json()["choices"][0]
        for fields in (small, small | {"repetition_penalty": 1})
    ]
    # A penalty of 100 changes the logit of a token of the prompt, and with it all probabilities.
    probabilities = [answer["logprobs"]["token_logprobs"][0] for answer in answers]
    assert abs(probabilities[0] - probabilities[1]) > 1e-4


def test_plain_answers_are_the_same_beside_changed_ones(served):
    client = served.client()
    alone = client.chat.completions.create(model="tiny", **PLAIN)
    body = PLAIN | {"max_tokens": 60, "frequency_penalty": 1.0, "n": 2}
    with served.web.stream("POST", CHAT, json=body | {"stream": True}) as stream:
        beside = client.chat.completions.create(model="tiny", **PLAIN)
        assert stream.read().decode().endswith("data: [DONE]\n\n")
    assert beside.choices[0].message.content == alone.choices[0].message.content
