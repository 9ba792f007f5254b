"""A served tiny model, and a chat whose answers and failures are scripted."""

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
import time

import httpx
import numpy as np
from starlette.responses import JSONResponse
from starlette.routing import Route

from agentgym_jax.episodes.trajectory import TokenSource
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.serving.answer_parts import AnswerForm
from agentgym_jax.serving.app import make_app
from agentgym_jax.serving.backend import ModelBackend
from agentgym_jax.serving.engine import Engine
from agentgym_jax.serving.error_answers import UnknownEpisodeError
from agentgym_jax.serving.http_server import HttpServer
from agentgym_jax.serving.requests import Generation, Pending
from agentgym_jax.serving.sequences import Answer
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.grammars import Grammars
from agentgym_jax.text.tool_chat import ToolChat
from tests.builders import make_sampler
from tests.waiting import PATIENCE_S

MODEL = "tiny"
ROWS = 4
CONTEXT = 256
BUCKETS = ((16, 2), (64, 2))


class Server:
    """Running application.

    Attributes:
      web: HTTP client.
      url, port: Address.
    """

    def __init__(self, http, backend, engine=None):
        self.http, self.backend, self.engine = http, backend, engine
        self.url = http.url
        self.port = int(http.url.rsplit(":", 1)[1])
        self.web = httpx.Client(base_url=http.url, timeout=PATIENCE_S)
        self._clients = {}

    def client(self, path="", key="any"):
        """Returns a client that never repeats a request."""
        import openai  # takes a second

        if (path, key) not in self._clients:
            self._clients[path, key] = openai.OpenAI(**self.settings(path, key))
        return self._clients[path, key]

    def anthropic(self, key="any"):
        """Returns a client of Anthropic's API that never repeats a request."""
        import anthropic  # takes three seconds

        name = ("anthropic", key)
        if name not in self._clients:
            self._clients[name] = anthropic.Anthropic(
                base_url=self.url, api_key=key, max_retries=0, timeout=PATIENCE_S
            )
        return self._clients[name]

    def settings(self, path="", key="any"):
        """Returns the arguments of a client."""
        url = f"{self.url}{path}/v1"
        return dict(base_url=url, api_key=key, max_retries=0, timeout=PATIENCE_S)

    def close(self):
        """Closes the connections of all clients."""
        for client in (self.web, *self._clients.values()):
            client.close()

    def connect(self):
        """Returns a plain connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)


async def _tasks(request):
    return JSONResponse(len(asyncio.all_tasks()))


@contextlib.contextmanager
def serving(backend, *, token="", engine=None):
    """Serves a backend; `/tasks` answers with the number of tasks of the server."""
    app = make_app(backend, token=token, routes=[Route("/tasks", _tasks)])
    with HttpServer(app) as http:
        server = Server(http, backend, engine)
        try:
            yield server
        finally:
            server.close()


@contextlib.contextmanager
def serving_model(policy, params, tokenizer, *, rows=ROWS, context=CONTEXT, max_waiting=1000):
    """Serves a policy; in the end, all rows of its sampler must be free."""
    renderer = ChatRenderer(tokenizer)
    sampler = make_sampler(
        policy,
        params,
        renderer.stop_ids,
        version=7,
        rows=rows,
        cache_length=context,
        buckets=BUCKETS,
    )
    grammars = Grammars(tokenizer, renderer.stop_ids, policy.config.vocab_size)
    engine = Engine(sampler, tokenizer.decode, max_waiting=max_waiting, grammars=grammars)
    defaults = SamplingOptions(temperature=1.0, max_turn_tokens=context, max_tokens=context)
    backend = ModelBackend(
        engine, ToolChat(renderer, tokenizer), tokenizer, defaults, model_name=MODEL, max_known=16
    )
    with engine.running(), serving(backend, engine=engine) as server:
        yield server
    assert sampler.free_rows == sampler.rows


class FakeBackend:
    """Backend whose answers are a text in tokens of one byte, or an error.

    Attributes:
      text: Text of the next answers; None for requests that stay open.
      errors: Errors of the next calls of `submit`; None for none. Each call removes the first.
      open: Requests without an answer.
    """

    model_name = MODEL
    context_length = 4096
    answer_form = AnswerForm()

    def __init__(self, tokenizer, text="hello"):
        self.tokenizer, self.text = tokenizer, text
        self.vocab_size = tokenizer.vocab_size
        self.errors, self.open, self.cancelled = [], [], 0
        self._lock = threading.Lock()

    def chat(self, episode):
        if episode not in (None, "known"):
            raise UnknownEpisodeError(f"there is no episode {episode}")
        return self

    def load(self):
        return len(self.open), 0

    def count_tokens(self, messages, tools):
        return len(messages) + len(tools)

    def submit_tokens(self, prompt_ids, sampling, on_tokens=None):
        return self.submit_chat(prompt_ids, [], sampling, on_tokens)

    def submit_chat(self, messages, tools, sampling, on_tokens=None):
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        future = concurrent.futures.Future()

        def cancel():
            with self._lock:
                if not future.done():
                    self.cancelled += 1
                    if future in self.open:
                        self.open.remove(future)
                    future.set_exception(concurrent.futures.CancelledError())

        if self.text is None:
            self.open.append(future)
        else:
            ids = np.asarray(
                self.tokenizer.encode(self.text[:400]), np.int32
            )  # enough for all streams
            logprobs = np.full(len(ids), -0.5, np.float32)
            if on_tokens is not None:
                threading.Thread(target=self._tell, args=(future, ids, logprobs, on_tokens)).start()
            else:
                future.set_result(self._result(ids, logprobs))
        return Pending(future, cancel, 3)

    def _tell(self, future, ids, logprobs, on_tokens):
        for i in range(1, len(ids)):
            on_tokens(ids[:i].tolist())
            time.sleep(0.001)
        with self._lock:
            if not future.done():
                future.set_result(self._result(ids, logprobs))

    def _result(self, ids, logprobs):
        prompt = np.asarray([1, 2, 3], np.int32)
        return Generation(prompt, ids, logprobs, self.text, "stop", 0)


class Script:
    """Engine whose answers are given texts, each with a stop token unless a stop string ends it.

    The answers have the shortest tokens, so one that is encoded again has others wherever the
    tokenizer has longer ones.

    Attributes:
      texts: Texts of the next answers; each must have the form that its request demands.
      sampled: Prompt and sampled ids of each request, in order.
    """

    num_active = num_waiting = 0

    def __init__(self, tokenizer, stop_id, cache_length=4096):
        self.vocab_size, self.decode_text = tokenizer.vocab_size, tokenizer.decode
        self.cache_length = cache_length
        self.grammars = Grammars(tokenizer, (stop_id,), tokenizer.vocab_size)
        self.texts, self.sampled = [], []
        ids = set(range(tokenizer.vocab_size)) - set(tokenizer.special_tokens.values())
        self._bytes = {token: tokenizer.token_bytes(token) for token in ids}
        self._ids = {part: token for token, part in self._bytes.items()}
        self._stop_id = stop_id

    def forget(self, sequence):
        """Has no rows to free."""

    def submit(
        self,
        sequence,
        chunks,
        options,
        sampling,
        on_tokens=None,
        changes=None,
    ):
        added, future = sum(chunks, []), concurrent.futures.Future()
        prompt, text = [*sequence.tokens, *added], self.texts.pop(0)
        ends = [(text.index(word), word) for word in sampling.stop if word in text]
        at, word = min(ends, default=(len(text), ""))
        spoken, text = text[: at + len(word)], text[:at]
        ids = self._spell(spoken, not word, None if changes is None else changes.matcher)
        self.sampled.append((prompt, ids))

        def run():
            for i in range(1, len(ids) if on_tokens else 0):
                on_tokens(ids[:i])
                time.sleep(0.001)
            sequence.extend(added, TokenSource.PROMPT)
            start = len(sequence)
            sequence.extend(ids, TokenSource.ACTION, [-0.5] * len(ids), 0)
            sequence.answers.append(Answer(start, len(sequence), text, not word, False))
            logprobs = np.full(len(ids), -0.5, np.float32)
            arrays = np.asarray(prompt, np.int32), np.asarray(ids, np.int32), logprobs
            future.set_result(Generation(*arrays, text, "stop", 0, word))

        threading.Thread(target=run).start()
        return Pending(future, lambda: None, len(prompt))

    def _spell(self, text, is_stopped, matcher):
        """Returns the shortest tokens of a text that a grammar allows; None allows all."""
        rest, ids = text.encode(), []
        while rest or is_stopped:
            sizes = range(1, len(rest) + 1)
            starts = [self._ids[rest[:n]] for n in sizes if rest[:n] in self._ids]
            allowed = starts if rest else [self._stop_id]
            if matcher is not None:
                mask = matcher.allowed()
                allowed = [token for token in allowed if mask[token // 32] >> token % 32 & 1]
                assert allowed, f"{text!r} does not fit at {rest!r}: {matcher.grammar}"
                matcher.advance(allowed[0])
            ids.append(allowed[0])
            if not rest:
                break
            rest = rest[len(self._bytes[allowed[0]]) :]
        return ids


@contextlib.contextmanager
def serving_script(tokenizer, *, limit=4096, max_known=64, **parsers):
    """Serves conversations of up to `limit` tokens with a `Script`, the server's `engine`."""
    renderer = ChatRenderer(tokenizer)
    script = Script(tokenizer, renderer.stop_ids[0], limit)
    defaults = SamplingOptions(temperature=1.0, max_turn_tokens=limit, max_tokens=limit)
    encoder = ToolChat(renderer, tokenizer, **parsers)
    backend = ModelBackend(
        script, encoder, tokenizer, defaults, model_name=MODEL, max_known=max_known
    )
    with serving(backend, engine=script) as server:
        yield server


def user(text):
    """Returns the message of a user."""
    return {"role": "user", "content": text}
