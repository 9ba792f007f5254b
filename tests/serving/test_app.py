"""The HTTP application with OpenAI's client and a real engine: answers, streams and metrics."""

import asyncio
import concurrent.futures
import contextlib
import math

import prometheus_client.parser
import pytest

from agentgym_jax.serving import bodies
from agentgym_jax.serving.requests import (
    NotServingError,
    OverloadedError,
    RequestError,
    Sampling,
)
from agentgym_jax.serving.service import Service
from tests.serving.parts import CONTEXT, MODEL, FakeBackend, serving, user
from tests.waiting import PATIENCE_S, until

IDS = {"return_token_ids": True}
LOOK = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def ask(server, text="go north", **options):
    options = {"max_tokens": 30, "seed": 5} | options
    return server.client().chat.completions.create(model=MODEL, messages=[user(text)], **options)


def join(chunks):
    """Returns text, finish reasons and usage of a stream of one choice."""
    text, reasons, usage = "", [], None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += getattr(choice, "delta", choice).content or "" if choice.delta else ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    return text, reasons, usage


def test_the_same_seed_has_the_same_answer(served):
    first, second, other = ask(served), ask(served), ask(served, seed=6)
    assert first.choices[0].message.content == second.choices[0].message.content
    assert first.choices[0].message.content != other.choices[0].message.content
    assert first.choices[0].message.role == "assistant"
    assert first.object == "chat.completion"
    assert first.model == MODEL
    usage = first.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 1 <= usage.completion_tokens <= 30


def test_the_seed_holds_for_a_continued_conversation(served):
    def play(seed):
        first = ask(served, "a door").choices[0].message.content
        messages = [user("a door"), {"role": "assistant", "content": first}, user("go on")]
        answer = served.client().chat.completions.create(
            model=MODEL, messages=messages, seed=seed, max_tokens=20, extra_body=IDS
        )
        return answer.prompt_token_ids, answer.choices[0].token_ids

    first, again, other = play(8), play(8), play(9)
    assert first == again
    assert first[0] == other[0]
    assert first[1] != other[1]


def test_choices_differ_and_choice_i_has_the_answer_of_seed_plus_i(served):
    several = ask(served, n=3)
    texts = [choice.message.content for choice in several.choices]
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts[2] == ask(served, seed=7).choices[0].message.content
    assert several.usage.prompt_tokens == ask(served).usage.prompt_tokens


def test_max_tokens_and_stop_strings_end_an_answer(served):
    whole = ask(served, max_tokens=60)
    assert ask(served, max_tokens=3).usage.completion_tokens == 3
    assert ask(served, max_tokens=3).choices[0].finish_reason == "length"
    assert ask(served, max_completion_tokens=3, max_tokens=None).usage.completion_tokens == 3
    text = whole.choices[0].message.content
    stop = next(text[i : i + 2] for i in range(4, 50) if "\ufffd" not in text[i : i + 2])
    for form in (stop, [stop], ["not there", stop]):
        cut = ask(served, max_tokens=60, stop=form).choices[0]
        assert cut.message.content == text[: text.index(stop)]
        assert cut.finish_reason == "stop"


def test_each_token_has_a_finite_logprob_and_its_id(served):
    answer = ask(served, logprobs=True, extra_body=IDS)
    choice = answer.choices[0]
    assert len(choice.logprobs.content) == answer.usage.completion_tokens
    assert all(math.isfinite(t.logprob) and t.logprob <= 0 for t in choice.logprobs.content)
    assert len(choice.token_ids) == answer.usage.completion_tokens
    assert len(answer.prompt_token_ids) == answer.usage.prompt_tokens
    greedy = ask(served, temperature=1e-30, logprobs=True)
    assert all(math.isfinite(t.logprob) for t in greedy.choices[0].logprobs.content)
    assert ask(served, temperature=0).choices[0].message == greedy.choices[0].message
    ask(served, top_p=1e-300, logprobs=True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tools", [None, LOOK])
def test_a_stream_has_the_text_of_the_whole_answer(served, seed, tools):
    options = {"seed": seed, "max_tokens": 100, "logprobs": True, "extra_body": IDS}
    options |= {"tools": tools} if tools else {}
    whole = ask(served, **options)
    chunks = list(ask(served, stream=True, stream_options={"include_usage": True}, **options))
    text, reasons, usage = join(chunks)
    choice = whole.choices[0]
    assert text == choice.message.content
    assert reasons == [choice.finish_reason]
    assert usage == whole.usage
    last = next(c for c in reversed(chunks) if c.choices)
    assert last.choices[0].token_ids == choice.token_ids
    assert last.prompt_token_ids == whole.prompt_token_ids
    assert last.choices[0].logprobs.model_dump() == choice.logprobs.model_dump()


def test_streamed_choices_are_those_of_the_whole_answer(served):
    texts = [""] * 3
    for chunk in ask(served, n=3, stream=True, stop=["q"]):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [c.message.content for c in ask(served, n=3, stop=["q"]).choices]


def test_callbacks_never_have_the_last_tokens(served):
    # They could contain a stop string or the name of a stop token, which a stream must not show.
    chat = served.backend.chat(None)
    whole = chat.submit_tokens([1, 2], Sampling(seed=1, max_tokens=40)).result.result(PATIENCE_S)
    for sampling in (Sampling(seed=1, max_tokens=40), Sampling(seed=1, stop=[whole.text[20]])):
        seen = []
        note = lambda tokens, seen=seen: seen.append(len(tokens))
        pending = chat.submit_tokens([1, 2], sampling, note)
        result = pending.result.result(PATIENCE_S)
        assert seen
        assert max(seen) < len(result.token_ids)


def test_the_asynchronous_client_works(served, openai):
    async def run():
        async with openai.AsyncOpenAI(**served.settings()) as client:
            create = client.chat.completions.create
            options = {"model": MODEL, "messages": [user("go north")], "seed": 5, "max_tokens": 30}
            stream = await create(stream=True, **options)
            chunks = [chunk async for chunk in stream]
            return await create(**options), chunks

    whole, chunks = asyncio.run(run())
    assert join(chunks)[0] == whole.choices[0].message.content


def test_completions_take_texts_and_token_ids(served, tokenizer):
    create = served.client().completions.create
    options = {"model": MODEL, "max_tokens": 12, "seed": 3, "logprobs": 1}
    text = create(prompt="abc", **options)
    ids = create(prompt=tokenizer.encode("abc"), **options)
    several = create(prompt=["abc", "abcdef"], n=2, **options)
    assert text.choices[0].text == ids.choices[0].text == several.choices[0].text
    assert len(text.choices[0].logprobs.token_logprobs) == text.usage.completion_tokens
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.usage.prompt_tokens == 3 + 6
    lists = create(prompt=[tokenizer.encode("abc"), [1, 2]], **options)
    assert lists.choices[0].text == text.choices[0].text
    streamed = create(prompt="abc", stream=True, stream_options={"include_usage": True}, **options)
    chunks = list(streamed)
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == text.choices[0].text
    assert chunks[-1].usage == text.usage


def test_token_requests_have_the_shape_of_vllm(served, tokenizer):
    body = {"model": MODEL, "token_ids": [1, 2, 3], "sampling_params": {"seed": 1, "max_tokens": 9}}
    url = "/inference/v1/generate"
    answer = served.web.post(url, json=body).json()
    (choice,) = answer["choices"]
    assert 1 <= len(choice["token_ids"]) <= 9
    assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
    assert all(entry["logprob"] <= 0 for entry in choice["logprobs"]["content"])
    assert choice["finish_reason"] in ("stop", "length")
    assert answer["prompt_token_ids"] == [1, 2, 3]
    stop_id = choice["token_ids"][4]
    body["sampling_params"]["stop_token_ids"] = [stop_id]
    (cut,) = served.web.post(url, json=body).json()["choices"]
    at = choice["token_ids"].index(stop_id)
    assert cut["token_ids"] == choice["token_ids"][: at + 1]
    assert cut["finish_reason"] == "stop"
    several = body | {"sampling_params": {"seed": 1, "max_tokens": 9, "n": 2}}
    first, second = served.web.post(url, json=several).json()["choices"]
    assert first == choice
    assert second["token_ids"] != choice["token_ids"]
    assert served.web.post(url, json=body | {"stream": True}).status_code == 400
    assert served.web.post(url, json=body | {"model": "other"}).status_code == 400


def test_many_clients_get_the_answers_that_they_get_alone(served):
    def run(seed):
        answer = ask(served, f"task {seed}", seed=seed, max_tokens=8 + seed % 20, extra_body=IDS)
        return answer.choices[0].token_ids

    alone = [run(seed) for seed in range(64)]
    with concurrent.futures.ThreadPoolExecutor(64) as threads:
        assert list(threads.map(run, range(64))) == alone


def test_models_and_health_are_listed(served):
    (model,) = served.client().models.list().data
    assert model.id == MODEL
    assert model.max_model_len == CONTEXT
    idle = {"status": "ok", "running": 0, "waiting": 0}
    until(lambda: served.web.get("/health").json() == idle, "the end of earlier requests")


def metrics(server):
    """Returns the values of all metrics by name and labels."""
    text = server.web.get("/metrics").text
    families = prometheus_client.parser.text_string_to_metric_families(text)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def metrics_after(server, before, counts):
    """Returns the metrics when the numbers of requests by route and status have grown by `counts`.

    A client can have the last event of a stream before the server counts the request.
    """
    found = {}

    def all_counted():
        found.update(metrics(server))
        names = {("agentgym_requests_total", *labels): n for labels, n in counts.items()}
        return all(found.get(name, 0) - before.get(name, 0) == n for name, n in names.items())

    until(all_counted, f"a growth by {counts}")
    return found


def test_metrics_count_requests_and_tokens(served):
    before = metrics(served)
    answers = [ask(served), ask(served, n=2)]
    list(ask(served, stream=True))
    ask_wrong = served.web.post("/v1/chat/completions", content=b"{")
    assert ask_wrong.status_code == 400
    route = "/v1/chat/completions"
    after = metrics_after(served, before, {(route, "200"): 3, (route, "400"): 1})

    def gain(*name):
        return after[name] - before.get(name, 0)

    assert gain("agentgym_request_seconds_count", route) == 4
    sampled = sum(answer.usage.completion_tokens for answer in answers)
    first = answers[0].usage.completion_tokens
    assert gain("agentgym_sampled_tokens_total") == sampled + first
    assert after[("agentgym_requests_running",)] == after[("agentgym_requests_waiting",)] == 0


def test_metrics_count_the_routes_of_all_apis(served):
    before = metrics(served)
    responses = served.client().responses
    answers = [
        served.anthropic().messages.create(model=MODEL, max_tokens=3, messages=[user("hi")]),
        responses.create(model=MODEL, max_output_tokens=3, input="hi"),
    ]
    *_, last = responses.create(model=MODEL, max_output_tokens=3, input="a", stream=True)
    answers.append(last.response)
    counts = {("/v1/messages", "200"): 1, ("/v1/responses", "200"): 2}
    after = metrics_after(served, before, counts)
    name = ("agentgym_sampled_tokens_total",)
    # An answer may end before its limit: its draws depend on the number of earlier requests.
    assert after[name] - before[name] == sum(a.usage.output_tokens for a in answers) > 0


def test_labels_of_metrics_are_patterns_of_routes(fake):
    for i in range(20):
        fake.web.get(f"/nowhere/{i}")
        fake.web.get(f"/episodes/e{i}/v1/models")
        fake.web.get(f"/episodes/e{i}/v1/completions")
    routes = {name[1] for name in metrics(fake) if name[0] == "agentgym_requests_total"}
    episode = "/episodes/{episode}/v1"
    assert routes <= {"unknown", f"{episode}/models", f"{episode}/completions", "/metrics"}
    assert {"unknown", f"{episode}/models"} <= routes


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (OverloadedError("busy"), "RateLimitError", "overloaded"),
        (NotServingError("update"), "InternalServerError", "not_serving"),
        (RequestError("no", "some_code", "messages"), "BadRequestError", "some_code"),
        (RuntimeError("bug"), "InternalServerError", "internal"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"stream": True}, {"n": 3}])
def test_errors_of_the_policy_become_errors_of_the_client(fake, openai, error, kind, code, options):
    fake.backend.text = None
    fake.backend.errors = [*[None] * (options.get("n", 1) - 1), error]
    with pytest.raises(getattr(openai, kind)) as caught:
        ask(fake, **options)
    assert caught.value.body["code"] == code
    assert set(caught.value.body) == {"message", "type", "param", "code"}
    assert not fake.backend.open  # the choices that were submitted before are cancelled
    if isinstance(error, NotServingError):
        assert caught.value.status_code == 503
        assert caught.value.response.headers["retry-after"] == "5"


def test_an_error_during_a_stream_is_its_last_event(fake, openai):
    fake.backend.text = None
    stream = ask(fake, stream=True)
    next(iter(stream))
    fake.backend.open.pop().set_exception(NotServingError("the policy is updated"))
    with pytest.raises(openai.APIError, match="the policy is updated"):
        list(stream)


def test_episodes_have_routes_of_their_own(fake, openai):
    assert fake.client(path="/episodes/known").models.list().data
    with pytest.raises(openai.NotFoundError, match="no episode other"):
        fake.client(path="/episodes/other").models.list()
    with pytest.raises(openai.NotFoundError):
        fake.client(path="/nowhere").models.list()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Host": "evil.example:80", "Origin": "http://evil.example:80"},
        {"Host": "127.0.0.1.evil.example"},
    ],
)
def test_pages_of_other_sites_cannot_use_the_model(fake, headers):
    body = {"messages": [user("hi")]}
    for path in ("/v1/chat/completions", "/episodes/known/v1/chat/completions"):
        answer = fake.web.post(path, json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    own = {"Host": f"localhost:{fake.port}", "Origin": f"http://localhost:{fake.port}"}
    assert fake.web.post("/v1/chat/completions", json=body, headers=own).status_code == 200


def test_a_slow_body_is_refused(fake, monkeypatch):
    monkeypatch.setattr(bodies, "READ_S", 0.2)
    with fake.connect() as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")


def test_bodies_that_are_read_at_the_same_time_are_limited(fake, monkeypatch):
    monkeypatch.setattr(bodies, "_MAX_BODIES", 1000)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n"
    with fake.connect() as first, fake.connect() as second:
        first.sendall(head + b" " * 800)
        until(lambda: fake.web.get("/health").status_code == 200, "no answer")
        second.sendall(head + b" " * 800)
        assert second.recv(1000).startswith(b"HTTP/1.1 429")
    until(
        lambda: fake.web.post("/v1/completions", content=b"{}" + b" " * 900).status_code == 400,
        "the space is not free again",
    )


def test_long_headers_are_refused(fake):
    with fake.connect() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for i in range(20_000):
            connection.sendall(b"X-%d: %s\r\n" % (i, b"a" * 90))
        connection.sendall(b"\r\n")
        assert not connection.recv(1000).startswith(b"HTTP/1.1 2")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "bearer secret"},
        {"Authorization": "BEARER  secret"},
        {"X-Api-Key": "secret"},
    ],
)
def test_a_token_may_be_sent_in_several_ways(tokenizer, headers):
    with serving(FakeBackend(tokenizer), token="secret") as server:
        assert server.web.get("/v1/models", headers=headers).status_code == 200
        wrong = {name: value.replace("secret", "other") for name, value in headers.items()}
        assert server.web.get("/v1/models", headers=wrong).status_code == 401
        # Pages of other sites do not know the token, so any name of the server will do.
        named = headers | {"Host": "machine.example"}
        assert server.web.get("/v1/models", headers=named).status_code == 200


def test_requests_need_the_token(tokenizer, openai):
    with serving(FakeBackend(tokenizer), token="secret") as server:
        assert server.client(key="secret").models.list().data
        with pytest.raises(openai.AuthenticationError, match="bearer token"):
            server.client(key="wrong").models.list()
        assert server.web.get("/metrics").status_code == 401
        assert server.web.get("/health").status_code == 200


def test_requests_that_wait_for_each_other_are_answered_in_every_event_loop(tokenizer):
    service = Service(FakeBackend(tokenizer))

    async def ask():
        return await asyncio.gather(*(service.run(lambda: 1) for _ in range(3)))

    assert asyncio.run(ask()) == asyncio.run(ask()) == [1, 1, 1]
