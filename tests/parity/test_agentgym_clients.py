"""AgentGym's unchanged client classes on this project's servers.

    AGENTGYM=DIR pytest tests/parity/test_agentgym_clients.py -n 0 --log-cli-level=INFO

DIR is a checkout of AgentGym. Its package `agentenv` is imported, which needs requests, torch and
transformers. Each case starts one of this project's servers as a separate process.
"""

import dataclasses
import logging
from typing import Any

import pytest
import requests

from agentgym_jax.client.embedded import EmbeddedServers
from tests.parity.agentgym_checkout import load, needs_checkout

pytestmark = [
    needs_checkout,
    pytest.mark.timeout(900),
]
MAX_TURNS = 100


@dataclasses.dataclass(frozen=True)
class Case:
    """An environment and the AgentGym client class for it.

    Attributes:
      client: Name of the AgentGym client class.
      tasks: Indices of the tasks to play.
      solved: Minimum reward of the last step if the task is solved.
      prefix: Path at the end of the server address that AgentGym's client expects.
      has_close: True if the client class can close its session.
    """

    client: str
    tasks: tuple[int, ...]
    solved: float = 1.0
    prefix: str = ""
    has_close: bool = True


CASES = {
    "textcraft": Case("TextCraftEnvClient", (0, 124, 130, 415, 420, 540)),
    # BabyAI's reward is the score, which is at least 0.1 for a success; the tasks cover all types
    # of levels.
    "babyai": Case("BabyAIEnvClient", (0, 3, 7, 12, 20, 31, 38, 40, 1999, 3999), solved=0.1),
    "sciworld": Case("SciworldEnvClient", (2936, 3250, 3600, 4136), solved=100),
    "maze": Case("MazeEnvClient", (0, 7, 18, 24), prefix="/maze", has_close=False),
    "wordle": Case("WordleEnvClient", (0, 1, 17, 39), prefix="/wordle", has_close=False),
}


@dataclasses.dataclass(frozen=True)
class Served:
    """A running server of this project and an AgentGym client that is connected to it."""

    case: Case
    url: str
    compat: bool
    client_class: Any

    def open(self) -> Any:
        return self.client_class(env_server_base=self.url, data_len=1000)


@pytest.fixture(scope="module", params=[False, True], ids=["default", "compat"])
def compat(request):
    return request.param


@pytest.fixture(scope="module", params=CASES)
def served(request, compat):
    case = CASES[request.param]
    arguments = ("--compat",) if compat else ()
    with EmbeddedServers([request.param], arguments=arguments) as servers:
        url = servers.urls[request.param] + case.prefix
        yield Served(case, url, compat, load("agentenv.envs", case.client))


def expert_text(client) -> str:
    """Returns a model output that contains the expert's next action."""
    answer = requests.get(
        f"{client.env_server_base}/expert_action", params={"id": client.env_id}, timeout=60
    )
    assert answer.status_code == 200, answer.text
    return f"Thought:\nThe next step.\n\nAction:\n{answer.json()['action']}"


def start(client, task) -> None:
    """Resets a session to a task; checks that the answer and the client's observation are texts."""
    answer = client.reset(task)
    assert answer["observation"].strip()
    assert client.observe().strip()


def checked_step(client, text):
    """Takes a step; checks that the result has the types that AgentGym's rollouts require."""
    out = client.step(text)
    assert type(out.state) is str and out.state.strip()
    assert type(out.reward) in (int, float)
    assert type(out.done) is bool
    assert client.observe() == out.state
    return out


def finish(client) -> list:
    """Plays the expert to the end of the episode; returns the result of every step."""
    steps = []
    while len(steps) < MAX_TURNS:
        steps.append(checked_step(client, expert_text(client)))
        if steps[-1].done:
            return steps
    raise AssertionError(f"not done after {MAX_TURNS} turns; the last answer: {steps[-1]}")


def end(served, client) -> None:
    if served.case.has_close:
        assert client.close() is True
    else:
        assert not hasattr(client, "close")


def test_the_expert_solves_whole_episodes_through_the_client(served):
    turns = 0
    for task in served.case.tasks:
        client = served.open()
        start(client, task)
        steps = finish(client)
        assert steps[-1].reward >= served.case.solved, f"task {task}: {steps[-1]}"
        turns += len(steps)
        end(served, client)
    logging.info("%s: %d episodes, %d steps", served.case.client, len(served.case.tasks), turns)


def test_a_client_gets_the_same_answers_when_it_repeats_a_task(served):
    first_task, second_task = served.case.tasks[:2]
    client = served.open()
    seen = []
    for task in (first_task, second_task, first_task):
        start(client, task)
        seen.append((client.observe(), finish(client)))
    assert seen[0] == seen[2]
    assert seen[0] != seen[1]
    end(served, client)


def test_a_meaningless_text_is_answered_without_a_reward(served):
    client = served.open()
    start(client, served.case.tasks[0])
    for text in ("I do not know.", "Thought: hm\n\nAction:\ndance wildly", "Action:"):
        out = checked_step(client, text)
        assert (out.reward, out.done) == (0, False)
    end(served, client)


def test_two_clients_at_once_do_not_affect_each_other(served):
    tasks = served.case.tasks[:2]
    alone = []
    for task in tasks:
        client = served.open()
        start(client, task)
        alone.append(checked_step(client, expert_text(client)).state)
        end(served, client)
    clients = [served.open() for _ in tasks]
    assert clients[0].env_id != clients[1].env_id
    for client, task in zip(clients, tasks, strict=True):
        start(client, task)
    for client, state in zip(reversed(clients), reversed(alone), strict=True):
        assert checked_step(client, expert_text(client)).state == state
    for client in clients:
        end(served, client)
