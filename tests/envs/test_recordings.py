"""Requests recorded from AgentGym's servers get the same answers from this project's servers."""

import pytest

from agentgym_envs.base.served import load_environment
from agentgym_envs.registry import ENVIRONMENTS
from tests.envs.recordings import Replay, recorded_calls


@pytest.mark.parametrize("name", ["maze", "wordle"])
def test_recorded_requests_get_the_answers_of_agentgyms_server(name):
    compared = 0
    for calls in recorded_calls(name):
        server = Replay(load_environment(ENVIRONMENTS[name].module))
        for path, argument, reply in calls:
            assert server.ask(path, argument) == reply, (path, argument)
            compared += 1
    assert compared > 20
