"""Address, key and replies of a chat endpoint."""

import pytest

from agentgym_jax.client.chat_endpoint import (
    ChatEndpoint,
    CompletionError,
    RefusedError,
    TemporaryError,
    backoff_s,
    split_url,
)
from tests.fake_server import DROP, serving
from tests.waiting import PATIENCE_S

KEY = "sk-very-secret"


def endpoint(url, key=KEY):
    return ChatEndpoint(
        url,
        key=key,
        key_variable="TEST_KEY",
        connect_timeout_s=PATIENCE_S,
        timeout_s=PATIENCE_S,
        connections=2,
    )


def completion(content="hi", finish_reason="stop", **fields):
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
    return 200, {"choices": [choice], **fields}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:8000", ("http://h:8000", "/v1")),
        ("http://h:8000/v1/", ("http://h:8000", "/v1")),
        ("https://h/api/v1/chat/completions", ("https://h", "/api/v1")),
    ],
)
def test_an_address_can_end_with_host_version_or_route(url, expected):
    assert split_url(url) == expected


def test_a_completion_has_the_text_and_the_token_counts():
    usage = {"prompt_tokens": 12, "completion_tokens": 3}
    with serving(lambda request: completion(usage=usage)) as server:
        found = endpoint(server.url).complete({"model": "m"})
    assert (found.text, found.is_cut) == ("hi", False)
    assert (found.prompt_tokens, found.completion_tokens) == (12, 3)
    assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("usage", [None, {}, [], {"prompt_tokens": "many"}, {"prompt_tokens": -1}])
def test_unusable_token_counts_are_0(usage):
    with serving(lambda request: completion(finish_reason="length", usage=usage)) as server:
        found = endpoint(server.url).complete({})
    assert (found.prompt_tokens, found.completion_tokens, found.is_cut) == (0, 0, True)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((503, f"busy, your key is {KEY}".encode()), TemporaryError),
        (DROP, TemporaryError),
        ((401, f"bad key {KEY}".encode()), RefusedError),
        ((302, f"see {KEY}".encode(), {"Location": "http://127.0.0.1:9/"}), RefusedError),
        ((200, f"[{KEY}]".encode()), CompletionError),
        ((200, b"[" * 100_000), CompletionError),
    ],
)
def test_failures_have_types_and_never_the_key(answer, error):
    with serving(lambda request: answer) as server, pytest.raises(error) as raised:
        endpoint(server.url).complete({})
    assert KEY not in str(raised.value)


def test_pauses_double_up_to_a_limit():
    assert 0.25 <= backoff_s(1) <= 0.5 and 1.0 <= backoff_s(3) <= 2.0
    assert backoff_s(1000) <= 20.0
