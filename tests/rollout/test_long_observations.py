"""Observations that are much longer than the context of an episode."""

import pytest

from agentgym_jax.client.actions import ParsedAction
from agentgym_jax.client.answers import Observation
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.rollout.episode import AgentTurn, Episode, Finish
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import episode_request

LIMIT = 64


class Counted:
    """A tokenizer that counts the characters that it encodes."""

    def __init__(self):
        self._tokenizer = byte_tokenizer()
        self.characters = 0

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def guarding(self, texts):
        return self

    def encode(self, text):
        self.characters += len(text)
        return self._tokenizer.encode(text)


@pytest.fixture
def counted():
    return Counted()


def episode(tokenizer):
    request = episode_request(Task("maze", 0, "maze"), max_turns=3, max_tokens=LIMIT)
    return Episode(request, renderer=ChatRenderer(tokenizer), preamble=())


@pytest.mark.parametrize("unit", ["a", "é 門", " "])
def test_only_the_start_of_a_long_observation_is_encoded(counted, unit):
    long = "x" + unit * 300_000 + "x"
    started = episode(counted)
    counted.characters = 0
    assert started.begin(long) == Finish(Outcome.CONTEXT_FULL)
    later = episode(counted)
    later.begin("a wall")
    later.act(AgentTurn(0, "go"), ParsedAction("go"))
    answer = Observation(long, reward=0.5, score=0.5, done=False, success=False)
    assert later.observe(answer) == Finish(Outcome.CONTEXT_FULL)
    assert counted.characters < 20_000
    whole = byte_tokenizer().encode(long)
    found = started.trajectory(attempts=1, seconds=0.0).tokens.tolist()
    at = found.index(whole[0])
    assert found[at : at + LIMIT] == whole[:LIMIT]


@pytest.mark.parametrize("tokens", [1, 5, 40])
@pytest.mark.parametrize("text", ["", "a" * 10, "a" * 2000, "門" * 700, " \n" * 900 + "x"])
def test_a_text_is_cut_only_if_it_has_more_tokens(tokens, text):
    tokenizer = byte_tokenizer()
    start = ChatRenderer(tokenizer).start_of(text, tokens)
    assert text.startswith(start)
    assert start == text or len(tokenizer.encode(text)) > tokens
