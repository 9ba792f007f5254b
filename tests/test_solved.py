"""The rule for a solved task, which is the same everywhere: a score of 1, except for rounding."""

import json

import pytest

from agentgym_envs.base.environment import Environment, StepResult
from agentgym_envs.base.host import UNIFORM_STEP, SessionHost
from agentgym_envs.base.served import standard_environment
from agentgym_envs.demonstrations import plain_text, record
from agentgym_jax.client.server_facts import Success
from agentgym_jax.programs.task import parse_result
from agentgym_jax.traces.training_trace import from_training_trace
from tests.env_clients import connect


def served(score):
    class Once(Environment):
        def reset(self, data_idx):
            return StepResult("start", 0, 0, False)

        def step(self, action):
            return StepResult("end", score, score, True)

        def expert_action(self):
            return "go"

    return standard_environment(
        Once,
        [{"data_idx": 0, "split": "train"}],
        name="once",
        version="1",
        instructions="Play.",
        max_turns=1,
    )


def by_server(score):
    host = SessionHost(served(score), compat=False)
    host.answer("create", 0, None)
    host.answer("reset", 0, 0)
    return json.loads(host.answer(UNIFORM_STEP, 0, "go"))["success"]


def by_demonstrations(score):
    options = dict(agent="expert", epsilon=0.0, seed=0, max_turns=1, to_text=plain_text)
    (found,) = record(served(score), [0], **options)
    return found["success"]


def by_trace(score):
    turn = dict(
        prompt_token_ids=[1],
        completion_token_ids=[2],
        per_token_logps=[-1.0],
        loss_mask=[0, 1],
        metadata=dict(reward=score),
    )
    (found,) = from_training_trace({"schema_version": 1, "turns": [turn]}, "file, line 1")
    return found.success


PLACES = dict(
    client=lambda score: Success("score", 1.0, needs_done=True)(0.0, score, True),
    program=lambda score: parse_result(score).success,
    program_object=lambda score: parse_result({"reward": score}).success,
    server=by_server,
    demonstrations=by_demonstrations,
    trace=by_trace,
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("score", "is_solved"),
    [(0.7 + 0.2 + 0.1, True), (sum([0.1] * 10), True), (1.0, True), (0.99, False), (0.0, False)],
)
def test_a_sum_of_weighted_parts_is_solved_like_a_whole(place, score, is_solved):
    assert bool(PLACES[place](score)) is is_solved


@pytest.mark.parametrize(("least", "is_solved"), [(0.0, False), (0.4, True), (0.6, False)])
def test_a_key_sets_the_score_of_a_server_that_says_otherwise(least, is_solved):
    class Fixed:
        def exchange(self, method, target, request, timeout_s, request_id=""):
            body = dict(observation="end", reward=0.5, score=0.5, done=True)
            return 200, json.dumps(body).encode()

    facts = connect("http://127.0.0.1:1").facts
    own = dict(facts=facts, success_score=least, transport=Fixed())
    client = connect("none://textcraft", **own)
    assert client.step(0, "go").success is is_solved
