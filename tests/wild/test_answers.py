"""Wild values in the answers of environments: an observation, or one line that names the field."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.in_process import InProcessServer
from agentgym_envs.base.served import standard_environment
from agentgym_jax.client.actions import ParsedAction
from agentgym_jax.client.answers import Observation
from agentgym_jax.client.client import EnvClient
from agentgym_jax.client.errors import EnvCause, EnvError
from agentgym_jax.client.in_process import InProcessTransport
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome, from_record, to_record
from agentgym_jax.rollout.episode import (
    AgentTurn,
    Append,
    Episode,
    Finish,
)
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import episode_request
from tests.env_clients import connect
from tests.examples import fixed, searches
from tests.waiting import PATIENCE_S

LIMIT = 200  # tokens of an episode
RENDERER = ChatRenderer(byte_tokenizer())
FIELDS = ("observation", "reward", "score", "done")
# a quarter of a second in the default tier, and a longer search in the slow one
SEARCHES = searches(50, 3000)

# Surrogates, NUL and line separators are frequent here. A long text is a repeated short one.
texts = st.text(
    st.one_of(st.characters(), st.sampled_from("\0\ud800\udfff\u2028\ufeff\u0301\x1b")), max_size=20
)
long_texts = st.builds(lambda text, n: text * n, texts, st.sampled_from([1, 1, 1, 50, 20_000]))
numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([10**400, -(10**400), 1e308, -1e308, 5e-324, -0.0, 2**63]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, long_texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=4,
)
likely = dict(observation=long_texts, reward=numbers, score=numbers, done=st.booleans())
usual = likely | dict(reward=st.floats(-1, 1), score=st.floats(-1, 1))


def fields():
    """Returns a strategy of answers in which most fields have the right type."""
    entries = {name: st.one_of(good, good, good, values) for name, good in likely.items()}
    return st.fixed_dictionaries(entries)


def request():
    return episode_request(Task("wild", 0, "wild"), max_tokens=LIMIT)


def check_observation(seen):
    """Checks that an episode with this answer can be encoded, written and read."""
    assert type(seen.text) is str and type(seen.done) is bool
    assert all(type(n) is float and math.isfinite(n) for n in (seen.reward, seen.score))
    episode = Episode(request(), renderer=RENDERER, preamble=())
    command = episode.begin(seen.text)
    if isinstance(command, Append):
        assert sum(map(len, command.chunks)) < LIMIT
        episode.act(AgentTurn(0, "go"), ParsedAction("go"))
        command = episode.observe(seen)
    while isinstance(command, Append):  # rewards add up
        episode.act(AgentTurn(0, "go"), ParsedAction("go"))
        command = episode.observe(seen)
    if not isinstance(command, Finish):
        episode.fail(Outcome.ABORTED, "")
    played = episode.trajectory(attempts=1, seconds=0.0)
    # At most 16 characters per token of the limit are kept, each with at most 4 bytes.
    assert len(played.tokens) < (16 * 4 + 2) * LIMIT
    line = json.dumps(to_record(played), ensure_ascii=False, allow_nan=False)
    assert from_record(json.loads(line.encode("utf-8"))).messages == played.messages


def check_one_line(error, *words):
    text = str(error)
    assert "\n" not in text and len(text) < 1200
    assert any(word in text for word in words), text


class Fixed:
    """A transport with the same answer to every request."""

    def __init__(self, body):
        self.body = body

    def exchange(self, method, target, request, timeout_s, request_id=""):
        return 200, self.body


def served(factory):
    return standard_environment(
        factory,
        [{"data_idx": 0, "split": "train"}],
        name="wild",
        version="1",
        instructions="Play.",
        max_turns=2,
    )


class Quiet(Environment):
    def reset(self, data_idx):
        return StepResult("start", 0, 0, False)

    def step(self, action):
        return StepResult("next", 0, 0, False)


SCALES = (1.0, 0.01, 1e-30, 1e30)  # best scores of an environment
QUIET = InProcessTransport(InProcessServer(served(Quiet)))
FACTS = connect("inprocess://wild", "wild", transport=QUIET).facts


@SEARCHES
def test_an_answer_of_a_server_is_an_observation_or_a_failed_attempt(examples):
    @fixed(examples, checks=False)
    @given(
        body=st.one_of(st.fixed_dictionaries(usual), fields(), values),
        is_escaped=st.booleans(),
        best=st.sampled_from(SCALES),
    )
    def search(body, is_escaped, best):
        data = json.dumps(body, ensure_ascii=is_escaped).encode("utf-8", "surrogatepass")
        facts = dataclasses.replace(FACTS, reward_scale=1 / best)
        client = connect("none://wild", "wild", facts=facts, transport=Fixed(data))
        for call in (lambda: client.reset(0, 0), lambda: client.step(0, "go")):
            try:
                seen = call()
            except EnvError as error:
                check_one_line(error, *FIELDS, "JSON", "type dict")
                assert error.cause in (EnvCause.BAD_BODY, EnvCause.ERROR_BODY)
            else:
                check_observation(seen)

    search()


arrays = st.sampled_from(
    [
        np.float32(0.5),
        np.float64(1),
        np.int64(1),
        np.bool_(True),
        np.float32("nan"),
        np.array(1.0),
        np.array([0.5, 1.0]),
        np.str_("a text"),
        b"bytes",
        {1, 2},
        object(),
    ]
)


@SEARCHES
def test_a_result_of_an_environment_is_an_observation_or_names_its_line(examples):
    class Wild(Quiet):
        found = None

        def step(self, action):
            return type(self).found

    server = InProcessServer(served(Wild))
    client = connect("inprocess://wild", "wild", transport=InProcessTransport(server))
    odd = {name: st.one_of(good, good, good, values, arrays) for name, good in likely.items()}

    @fixed(examples, checks=False)
    @given(found=st.one_of(st.builds(StepResult, **usual), st.builds(StepResult, **odd), values))
    def search(found):
        Wild.found = found
        session = client.create()
        client.reset(session, 0)
        try:
            seen = client.step(session, "go")
        except EnvError as error:
            assert error.origin.startswith("test_answers.py:")
            check_one_line(error, *(f"in step: {name} is" for name in (*FIELDS, "the result")))
        else:
            check_observation(seen)
            client.close(session)

    search()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (dict(reward=np.float32(0.5), score=np.int64(1)), (0.5, 1.0, False)),
        (dict(done=np.bool_(True), score=np.array(1.0)), (0.0, 1.0, True)),
        (dict(reward=True), (1.0, 0.0, False)),
    ],
)
def test_numbers_of_numpy_are_numbers(changes, expected):
    class Numbers(Quiet):
        def step(self, action):
            return dataclasses.replace(super().step(action), **changes)

    transport = InProcessTransport(InProcessServer(served(Numbers)))
    client = EnvClient("inprocess://wild", "wild", step_timeout_s=PATIENCE_S, transport=transport)
    session = client.create()
    client.reset(session, 0)
    seen = client.step(session, "go")
    assert isinstance(seen, Observation) and (seen.reward, seen.score, seen.done) == expected
