"""AgentGym's unchanged `Evaluator` and `APIAgent` on this project's two servers.

    AGENTGYM=DIR pytest tests/parity/test_agentgym_evaluator.py -n 0

DIR is a checkout of AgentGym. The agent samples from an endpoint of `agentgym_jax.serving`, and the
environment is our TextCraft server. Each call of `eval` plays one task, because AgentGym's
success rate raises for two (`rewards == 1 or rewards == 100` of an array).
"""

import jax
import pytest
import requests

from agentgym_jax.client.embedded import EmbeddedServers
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests.builders import tiny_policy
from tests.parity.agentgym_checkout import load, needs_checkout
from tests.serving.parts import MODEL, FakeBackend, serving, serving_model

pytestmark = [needs_checkout, pytest.mark.timeout(900)]
TASKS = (0, 124, 415)
CONTEXT = 4096  # tokens of one byte


class ExpertBackend(FakeBackend):
    """Answers with the expert's action in the session of an AgentGym client."""

    env_client = None

    def submit_chat(self, messages, tools, sampling, on_tokens=None):
        assert messages[-1]["content"] == self.env_client.observe()
        url, session = self.env_client.env_server_base, self.env_client.env_id
        answer = requests.get(f"{url}/expert_action", params={"id": session}, timeout=60)
        self.text = f"Thought:\nThe next step.\n\nAction:\n{answer.json()['action']}"
        return super().submit_chat(messages, tools, sampling, on_tokens)


@pytest.fixture(scope="module")
def task():
    """Returns AgentGym's task, connected to our server."""
    with EmbeddedServers(["textcraft"]) as servers:
        arguments = {"env_server_base": servers.urls["textcraft"], "data_len": 1000}
        yield load("agentenv.envs", "TextCraftTask")(client_args=arguments)


@pytest.fixture(scope="module")
def endpoint():
    """Returns a server of a tiny model."""
    tokenizer = byte_tokenizer()
    policy = tiny_policy(tokenizer)
    params = policy.init(jax.random.key(0))
    with serving_model(policy, params, tokenizer, context=CONTEXT) as server:
        yield server


def play(server, task, index, *, max_rounds, **options):
    """Returns the result of AgentGym's evaluator on one task."""
    agent = load("agentenv.controller", "APIAgent")(
        api_key="any", base_url=f"{server.url}/v1", model=MODEL, **options
    )
    evaluator = load("agentenv.controller", "Evaluator")(agent, [task])
    return evaluator.eval(max_rounds=max_rounds, idxs=[index])


@pytest.mark.parametrize("index", TASKS)
def test_the_experts_answers_solve_the_task(task, index):
    backend = ExpertBackend(byte_tokenizer())
    backend.env_client = task.clients[0]
    with serving(backend) as server:
        found = play(server, task, index, max_rounds=50)
    assert (found.score, found.success) == (1.0, 1.0)
    roles = [message["role"] for message in found.experiences[0].conversation]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


@pytest.mark.parametrize("index", TASKS)
def test_a_model_plays_one_conversation_that_keeps_its_tokens(endpoint, task, index):
    chat = endpoint.backend.chat(None)
    before = chat.num_forks
    found = play(endpoint, task, index, max_rounds=4, max_tokens=24, temperature=1.0, top_p=0.9)
    assert (found.score, found.success) == (0.0, 0.0)
    # AgentGym's first request has an answer that no model sampled; the other three are continuations.
    assert chat.num_forks == before + 1
    sequence, messages = list(chat.sequences.items())[-1]
    sampled = [answer.text for answer in sequence.answers]
    conversation = found.experiences[0].conversation
    assert [m["content"] for m in conversation if m["role"] == "assistant"][1:] == sampled
    assert len(sampled) == 4


def test_the_default_of_4096_tokens_is_limited_by_the_context(endpoint, task):
    found = play(endpoint, task, 0, max_rounds=1)
    answer = found.experiences[0].conversation[3]["content"]
    assert 0 < len(answer)
