"""Environments without a server: the agent program has its own tasks."""

import pytest

from agentgym_jax.client.errors import EnvCause
from agentgym_jax.client.no_server import NoServerTransport
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.config.sections import ConfigError, plain
from agentgym_jax.rl.rl_config import parse
from configs import common
from tests.env_clients import connect
from tests.integration import tiny
from tests.waiting import PATIENCE_S

TASKS = dict(kind="residues", start=0, stop=4, modulus=1, groups=dict(own=0))
HELD = dict(kind="residues", start=4, stop=5, modulus=1, groups=dict(own=0))


def client():
    return connect("none://own", "own", transport=NoServerTransport("own"))


def test_an_environment_without_a_server_has_no_instructions():
    spec = client().spec()
    assert (spec.name, spec.instructions) == ("own", "")
    assert client().parse("any text").action == "any text"


def test_a_start_without_a_server_is_a_typed_error():
    with EnvPool({"own": client()}, workers=1) as pool:
        pool.start("ticket", "own", 0)
        (reply,) = pool.poll(PATIENCE_S)
    assert reply.observation is None
    assert reply.error.cause is EnvCause.PROGRAM
    assert not reply.error.retryable_from_reset
    assert "protocol='none'" in reply.error.message


def config(**entry):
    c = tiny.get_config()
    c.rollout.show_turn_budget = "none"
    c.program = dict(command="x")
    entry = dict(protocol="none", train=TASKS, eval=HELD) | entry
    c.environments = dict(own=common.environment(**entry))
    c.horizon = dict(kind="fixed", turns=1)
    return c


def test_own_tasks_need_no_shipped_environment():
    assert parse(plain(config())).environments["own"].protocol == "none"


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (dict(url="http://127.0.0.1:1"), "url='http://127.0.0.1:1'"),
        (dict(module="my.module"), "module='my.module'"),
        (dict(options=dict(a=1)), "options"),
        (dict(action_format="raw"), "action_format='raw'"),
        (dict(protocol="nonne"), "nonne"),
        (
            dict(eval=dict(kind="split", split="test", group_by="split", where={}, limit=0)),
            "eval of kind 'split'",
        ),
    ],
    ids=str,
)
def test_options_of_a_server_are_refused_without_one(entry, found):
    with pytest.raises(ConfigError, match=found):
        parse(plain(config(**entry)))


def test_own_tasks_without_a_program_are_refused():
    c = config()
    del c.program
    with pytest.raises(ConfigError, match="needs an agent program"):
        parse(plain(c))
