"""Engine and conversations: exact tokens, live caches, cancellation and bounded queues."""

import concurrent.futures
import itertools
import threading

import numpy as np
import pytest

from agentgym_jax.sampling.options import SamplingOptions, episode_key
from agentgym_jax.serving import engine
from agentgym_jax.serving.chat_sequences import Conversations
from agentgym_jax.serving.engine import Engine
from agentgym_jax.serving.requests import (
    NotServingError,
    OverloadedError,
    RequestError,
    Sampling,
)
from agentgym_jax.serving.sequences import TokenSequence
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import byte_tokenizer
from agentgym_jax.text.tool_chat import ToolChat
from tests.builders import make_sampler
from tests.serving.parts import BUCKETS, ROWS, user
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.usefixtures("compiled_fastest")

OPTIONS = SamplingOptions(temperature=1.0, max_turn_tokens=6, max_tokens=200)


class Server:
    """An engine with its sampler and one set of conversations."""

    def __init__(self, policy, params, tokenizer, *, rows=ROWS, max_waiting=100, max_known=None):
        self.renderer = ChatRenderer(tokenizer)
        self.sampler = make_sampler(
            policy, params, self.renderer.stop_ids, version=7, rows=rows, buckets=BUCKETS
        )
        self.engine = Engine(self.sampler, tokenizer.decode, max_waiting=max_waiting)
        self.encoder = ToolChat(self.renderer, tokenizer)
        self.chat = self.new_chat(max_known)

    def new_chat(self, max_known):
        return Conversations(
            self.engine,
            self.encoder,
            OPTIONS,
            lambda seed, number: episode_key(seed or 0, 0, "", number),
            max_known=max_known,
        )


@pytest.fixture
def server(policy, params, tokenizer):
    server = Server(policy, params, tokenizer)
    with server.engine.running():
        yield server
    assert server.sampler.free_rows == server.sampler.rows


def answer(server, messages, **sampling):
    return server.chat.submit_chat(messages, [], Sampling(**sampling)).result.result(PATIENCE_S)


def converse(server, texts):
    """Plays a conversation; returns its messages and the results."""
    messages, results = [], []
    for text in texts:
        messages.append(user(text))
        results.append(answer(server, messages))
        messages.append({"role": "assistant", "content": results[-1].text})
    return messages, results


def test_a_continued_conversation_has_the_tokens_of_an_episode(server, policy, params, tokenizer):
    messages, results = converse(server, ["go north", "there is a door", "it is open"])
    (sequence,) = server.chat.sequences
    sampler = Server(policy, params, tokenizer).sampler
    row = sampler.open(episode_key(0, 0, "", 0), OPTIONS)
    renderer, tokens = server.renderer, []
    chunks = renderer.opening(messages[:1])
    for i, result in enumerate(results):
        sampler.prefill(row, chunks)
        while not (turns := sampler.step()):
            pass
        np.testing.assert_array_equal(turns[0].tokens, result.token_ids)
        np.testing.assert_array_equal(turns[0].logprobs, result.logprobs)
        tokens += [*sum(chunks, []), *turns[0].tokens.tolist()]
        np.testing.assert_array_equal(tokens, [*result.prompt_ids, *result.token_ids])
        if i + 1 < len(results):
            closing = renderer.close_turn(turns[0].is_stopped)
            chunks = [[*closing, *renderer.observation(messages[2 * i + 2]["content"])]]
    assert sequence.tokens == tokens
    assert server.chat.num_forks == 0
    prefilled = server.sampler.statistics.prefilled
    assert prefilled < len(tokens)  # each token was prefilled at most once


@pytest.mark.parametrize(("lump_s", "tokens_per_call"), [(0.0, 1), (1e9, 4)])
def test_a_stream_on_a_slow_device_has_a_call_per_token(
    server, monkeypatch, lump_s, tokens_per_call
):
    monkeypatch.setattr(engine, "_LUMP_S", lump_s)
    messages, seen = [user("go north")], []
    expected = answer(server, messages)  # its calls have a time
    server.chat = server.new_chat(None)
    pending = server.chat.submit_chat(messages, [], Sampling(), lambda t: seen.append(len(t)))
    found = pending.result.result(PATIENCE_S)
    np.testing.assert_array_equal(found.token_ids, expected.token_ids)
    np.testing.assert_array_equal(found.logprobs, expected.logprobs)
    # the last tokens are in the result only
    assert seen == list(range(tokens_per_call, len(found.token_ids), tokens_per_call))


def test_a_conversation_without_its_row_continues_with_the_same_tokens(server):
    alone, expected = converse(server, ["go north", "there is a door"])
    server.chat = server.new_chat(None)
    messages = [user("go north")]
    first = answer(server, messages)
    (sequence,) = server.chat.sequences
    others = [
        server.engine.submit(TokenSequence(episode_key(0, 0, "x", i)), [[1, 2]], OPTIONS)
        for i in range(9)
    ]
    concurrent.futures.wait([other.result for other in others], PATIENCE_S)
    assert sequence.row is None
    messages += [{"role": "assistant", "content": first.text}, user("there is a door")]
    second = answer(server, messages)
    assert second.token_ids.tolist() == expected[1].token_ids.tolist()
    np.testing.assert_allclose(second.logprobs, expected[1].logprobs, atol=1e-5)


def test_a_stop_string_ends_the_answer_before_it(server):
    key = episode_key(3, 0, "", 0)
    options = SamplingOptions(temperature=1.0, max_turn_tokens=40, max_tokens=200)

    def sample(sequence, stop):
        pending = server.engine.submit(sequence, [[1, 2]], options, Sampling(stop=stop))
        return pending.result.result(PATIENCE_S)

    whole = sample(TokenSequence(key), [])
    stop = whole.text[5:7]
    sequence = TokenSequence(key)
    cut = sample(sequence, ["not in the text", stop])
    assert cut.finish_reason == "stop"
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.token_ids.tolist() == whole.token_ids[: len(cut.token_ids)].tolist()
    # The cache continues after the cut.
    again = server.engine.submit(sequence, [[5]], options).result.result(PATIENCE_S)
    fresh = TokenSequence(key)
    other = server.engine.submit(fresh, [again.prompt_ids.tolist()], options).result.result(
        PATIENCE_S
    )
    assert again.token_ids.tolist() == other.token_ids.tolist()


def test_a_cancelled_request_leaves_the_conversation_as_it_was(server):
    messages, _ = converse(server, ["go north"])
    messages.append(user("there is a door"))
    pending = server.chat.submit_chat(messages, [], Sampling(max_tokens=150))
    pending.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        pending.result.result(PATIENCE_S)
    (sequence,) = server.chat.sequences
    assert len(sequence.answers) == 1
    answer(server, messages)
    assert list(server.chat.sequences) == [sequence]
    assert len(sequence.answers) == 2


def test_a_message_that_the_template_leaves_out_is_refused_and_the_engine_goes_on(policy, params):
    tokenizer = byte_tokenizer(
        "{% for m in messages if m.role != 'tool' %}{{ '<|user|>' if m.role == 'user' }}{{ m.content }}"
        "{{ '<|assistant|>' if m.role == 'user' else '<|im_end|>' }}{% endfor %}"
    )
    server = Server(policy, params, tokenizer)
    stop = {server.renderer.stop_ids[0]: 100.0}
    with server.engine.running():
        first = answer(server, [user("go")], logit_bias=stop)
        messages = [user("go"), {"role": "assistant", "content": first.text}]
        with pytest.raises(RequestError, match="writes nothing for the last message"):
            answer(server, [*messages, {"role": "tool", "content": "a door"}])
        assert len(answer(server, [*messages, user("stay")]).token_ids)


@pytest.mark.parametrize("kind", [RuntimeError, ValueError])
def test_a_sampler_that_fails_while_it_admits_a_request_ends_it(
    policy, params, tokenizer, monkeypatch, kind
):
    server = Server(policy, params, tokenizer)

    def fail(row, chunks):
        raise kind("could not broadcast")

    monkeypatch.setattr(server.sampler, "prefill", fail)
    with pytest.raises(RuntimeError) as raised, server.engine.running():
        with pytest.raises(NotServingError):
            answer(server, [user("go")])
    # Commands show one line of a ValueError, which would hide where the engine failed.
    error = raised.value if kind is RuntimeError else raised.value.__cause__
    assert type(error) is kind and str(error) == "could not broadcast"


def test_too_many_requests_are_refused(policy, params, tokenizer):
    server = Server(policy, params, tokenizer, rows=1, max_waiting=1)
    held = threading.Event()
    with server.engine.running():
        first = server.engine.submit(
            TokenSequence(episode_key(0, 0, "", 0)),
            [[1]],
            OPTIONS,
            on_tokens=lambda tokens: held.wait(PATIENCE_S),
        )
        refused = 0
        for i in range(4):
            try:
                server.engine.submit(TokenSequence(episode_key(i, 0, "", 1)), [[1]], OPTIONS)
            except OverloadedError:
                refused += 1
        held.set()
        first.result.result(PATIENCE_S)
    assert refused >= 2


def test_requests_that_wait_are_not_compared_with_each_other(
    policy, params, tokenizer, monkeypatch
):
    """Thousands wait if a program samples a batch at once; a pass over all pairs takes minutes."""
    server = Server(policy, params, tokenizer, rows=1, max_waiting=200)
    looks, is_due = itertools.count(), server.engine._is_due
    monkeypatch.setattr(server.engine, "_is_due", lambda work: next(looks) >= 0 and is_due(work))
    options = SamplingOptions(temperature=1.0, max_turn_tokens=1, max_tokens=200)
    with server.engine.running():
        pending = [
            server.engine.submit(TokenSequence(episode_key(0, 0, "", i)), [[1]], options)
            for i in range(150)
        ]
        for request in pending:
            request.result.result(PATIENCE_S)
    assert next(looks) < 150**2


def test_requests_end_when_the_engine_stops(policy, params, tokenizer):
    server = Server(policy, params, tokenizer)
    options = SamplingOptions(temperature=1.0, max_turn_tokens=200, max_tokens=250)
    with server.engine.running():
        # The answer has hundreds of tokens, so it is not complete at once.
        pending = server.engine.submit(TokenSequence(episode_key(0, 0, "", 0)), [[1]], options)
    with pytest.raises(NotServingError):
        pending.result.result(PATIENCE_S)
    with pytest.raises(NotServingError):
        server.engine.submit(TokenSequence(episode_key(0, 0, "", 0)), [[1]], OPTIONS)


def test_an_error_of_the_sampler_reaches_the_owner(policy, params, tokenizer, monkeypatch):
    server = Server(policy, params, tokenizer)

    def fail(*limits):
        raise MemoryError("no memory")

    monkeypatch.setattr(server.sampler, "begin", fail)
    with pytest.raises(MemoryError), server.engine.running():
        pending = server.engine.submit(TokenSequence(episode_key(0, 0, "", 0)), [[1]], OPTIONS)
        with pytest.raises(NotServingError):
            pending.result.result(PATIENCE_S)


def test_token_requests_continue_the_sequence_that_they_extend(server):
    first = server.chat.submit_tokens([1, 2, 3], Sampling()).result.result(PATIENCE_S)
    prompt = [1, 2, 3, *first.token_ids.tolist(), 9, 9]
    second = server.chat.submit_tokens(prompt, Sampling()).result.result(PATIENCE_S)
    (sequence,) = server.chat.sequences
    assert sequence.tokens == [*prompt, *second.token_ids.tolist()]


def test_old_conversations_are_forgotten(policy, params, tokenizer):
    server = Server(policy, params, tokenizer, max_known=2)
    with server.engine.running():
        for i in range(5):
            converse(server, [f"task {i}"])
        assert len(server.chat.sequences) == 2
