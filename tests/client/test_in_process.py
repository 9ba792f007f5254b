"""Environments in this process, whose observations and errors equal those over HTTP."""

import concurrent.futures
import random

import pytest

from agentgym_envs import demonstrations
from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.served import load_environment
from agentgym_envs.gym import TextEnv
from agentgym_envs.registry import ENVIRONMENTS as REGISTERED
from agentgym_jax.client.embedded import EmbeddedServers
from agentgym_jax.client.errors import EnvCause
from agentgym_jax.client.in_process import in_process_servers
from tests.env_clients import connect, failure

ENVIRONMENTS = ["textcraft", "babyai", "maze", "wordle", "todo", "sqlgym"]


@pytest.fixture(scope="module")
def clients():
    """Yields a mapping from each environment to (client over HTTP, client in process)."""
    with EmbeddedServers(ENVIRONMENTS) as servers, in_process_servers(ENVIRONMENTS) as here:
        yield {
            name: (
                connect(servers.urls[name], name),
                connect(f"inprocess://{name}", name, transport=here[name]),
            )
            for name in ENVIRONMENTS
        }


def play(client, data_idx, actions):
    session = client.create()
    seen = [client.reset(session, data_idx)]
    for action in actions:
        seen.append(client.step(session, action))
        if seen[-1].done:
            break
    client.close(session)
    return seen


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_same_actions_give_the_same_observations_as_over_http(clients, environment):
    over_http, here = clients[environment]
    assert over_http.spec() == here.spec()
    assert over_http.tasks() == here.tasks()
    words = ["inventory", "get 2 oak logs", "move up", "move left", "turn left", "move forward"]
    words += ["nonsense", "crane", "slate", "go to red ball 1", "pickup blue key 1", "drop"]
    words += ["Action: get_projects with Action Input: {}", "```sql\nSELECT * FROM student\n```"]
    for data_idx in (0, 5, 17):
        actions = random.Random(data_idx).choices(words, k=12)
        assert play(over_http, data_idx, actions) == play(here, data_idx, actions)


def test_errors_equal_those_over_http(clients):
    for client in clients["textcraft"]:
        session = client.create()
        unknown_task = failure(client.reset, session, 10**6)
        assert unknown_task.kind is ErrorKind.UNKNOWN_TASK
        client.close(session)
        client.close(session)  # a session that no longer exists counts as closed
        lost = failure(client.step, session, "inventory")
        assert lost.cause is EnvCause.SESSION_LOST


def test_many_threads_play_at_once(clients):
    _, here = clients["textcraft"]
    actions = ["inventory", "get 1 oak logs", "inventory"]
    alone = play(here, 3, actions)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(map(str, pool.map(lambda _: play(here, 3, actions), range(64)))) == {str(alone)}
    assert here.health()["sessions"] == 0


def test_an_environment_of_another_project_cannot_run_in_process():
    with pytest.raises(ValueError, match="'elsewhere' cannot run in this process"):
        with in_process_servers(["elsewhere"]):
            pass


@pytest.mark.parametrize(
    "environment", sorted({*REGISTERED} - {"webarena", "searchqa", "sciworld"})
)
def test_demonstrations_and_gymnasium_show_the_texts_of_a_rollout(environment):
    try:
        served = load_environment(REGISTERED[environment].module, {})
    except SetupError as error:
        pytest.skip(str(error))
    options = dict(agent="expert", epsilon=0.0, seed=0, max_turns=3, to_text=str)
    (shown,) = demonstrations.record(served, [3], **options)
    texts = [turn["value"] for turn in shown["conversations"][::2]]
    actions = [turn["value"] for turn in shown["conversations"][1::2]][: len(texts) - 1]
    with in_process_servers([environment]) as here:
        client = connect("inprocess://it", environment, transport=here[environment])
        assert [seen.text for seen in play(client, 3, actions)] == texts
    alone = TextEnv(environment)
    steps = [alone.reset(options={"data_idx": 3}), *map(alone.step, actions)]
    assert [text for text, *_ in steps] == texts
    alone.close()
