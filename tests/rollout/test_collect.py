"""Rollouts with a real sampler and real HTTP servers that are slow, fail and die."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentgym_jax.client.agentgym_originals.servers import ORIGINALS
from agentgym_jax.client.errors import ServerUnavailable
from agentgym_jax.client.pool import EnvPool
from agentgym_jax.client.transport import HttpTransport
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.models.token_logprobs import token_logprobs
from agentgym_jax.rollout.agents import SampledRows
from agentgym_jax.rollout.collect import Collector
from agentgym_jax.rollout.episode import EpisodeLimits
from agentgym_jax.rollout.retries import ContextTooSmallError
from agentgym_jax.sampling.options import SamplingOptions
from agentgym_jax.text.chat import ChatRenderer
from agentgym_jax.text.tokenizer import byte_tokenizer
from tests import env_clients
from tests.builders import make_sampler, tiny_policy
from tests.env_clients import connect
from tests.fake_server import DROP
from tests.rollout.world import TEXT, World, make_requests
from tests.waiting import PATIENCE_S

LIMITS = EpisodeLimits(max_turns=3, max_tokens=200, max_parse_errors=0)
SAMPLING = SamplingOptions(temperature=1.0, max_turn_tokens=6, max_tokens=200)


@pytest.fixture(scope="module")
def policy():
    return tiny_policy(byte_tokenizer())


def collect(
    policy,
    world,
    tasks,
    *,
    group=2,
    rows=4,
    max_attempts=3,
    max_replacements=0,
    limits=LIMITS,
    facts=None,
    show_turn_budget="none",
    restart_dead_servers=lambda: None,
    should_stop=lambda: False,
    make_renderer=ChatRenderer,
    drive=None,
    transport=None,
    **options,
):
    tokenizer = byte_tokenizer()
    renderer = make_renderer(tokenizer)
    params = policy.init(jax.random.key(0))
    sampler = make_sampler(policy, params, renderer.stop_ids, rows=rows)
    client = connect(world.url, facts=facts, transport=transport)
    options = dict(max_idle_sessions=16, close_timeout_s=PATIENCE_S) | options
    with EnvPool({"textcraft": client}, workers=8, **options) as pool:
        collector = Collector(
            rows=SampledRows(sampler, renderer, tokenizer.decode),
            pool=pool,
            environments={"textcraft": TEXT},
            prefetch=2,
            max_attempts=max_attempts,
            max_replacements=max_replacements,
            show_turn_budget=show_turn_budget,
            restart_dead_servers=restart_dead_servers,
        )
        requests = make_requests(tasks, group, limits, SAMPLING)
        progress = []
        calls = dict(
            on_progress=lambda done, total, tokens: progress.append((done, total)),
            should_stop=should_stop,
        )
        if drive is None:
            result = collector.collect(requests, replacement_stride=group, **calls)
        else:
            result = drive(collector, sampler, requests, calls)
        assert sampler.free_rows == rows
    assert progress[0][0] == 0  # before the first episode ends
    assert progress[-1] == (len(requests), len(requests))
    assert not world.sessions  # every created session is closed
    return result


def pausing(*turn_versions):
    """Returns a function that collects episodes with equal weights under several versions."""

    def drive(collector, sampler, requests, calls):
        params = sampler.params
        episodes = collector.overlapping(1)
        added, statistics = [], []
        for version in range(max(turn_versions) + 2):
            sampler.release()
            sampler.set_params(params, version=version)
            if version < 2:  # half of the episodes begin later
                half = requests[version::2]
                versions = tuple(v + version for v in turn_versions)
                half = [dataclasses.replace(r, turn_versions=versions) for r in half]
                added.append(episodes.add(half))
            statistics.append(episodes.run(version, **calls))
            assert sampler.free_rows == sampler.rows
        halves = [episodes.take(indices) for indices in added]
        assert [s.episodes for s in statistics][:2] == [0, 0]
        for name, count in (("turns", lambda t: len(t.turns)), ("episodes", lambda t: 1)):
            # a call counts only what happened in it: no turn is counted twice or late
            counts = [getattr(s, name) for s in statistics]
            assert min(counts) >= 0 and sum(counts) == sum(count(t) for h in halves for t in h)
        assert not max(turn_versions) or statistics[0].turns > 0
        return [t for pair in zip(*halves, strict=True) for t in pair], None

    return drive


class Forgetful(ChatRenderer):
    """A renderer of a template that cuts every answer when a message follows."""

    def opening(self, messages):
        return super().opening(
            [
                {**m, "content": m["content"][:1] if m["role"] == "assistant" else m["content"]}
                for m in messages
            ]
        )

    def continuation(self, messages, ended_by_stop):
        return None


@pytest.mark.parametrize("make_renderer", [ChatRenderer, Forgetful])
def test_episodes_that_pause_continue_with_the_weights_of_each_turn(policy, make_renderer):
    options = dict(group=2, make_renderer=make_renderer)
    expected = collect(policy, World(), range(4), **options)[0]
    found = collect(policy, World(), range(4), drive=pausing(0, 2, 2), **options)[0]
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert (a.item_id, a.sample, a.outcome) == (b.item_id, b.sample, b.outcome)
        np.testing.assert_array_equal(a.tokens, b.tokens)
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)
        versions = [a.policy_versions[turn.action_start] for turn in a.turns]
        if a.attempts == 1:  # a later attempt has newer weights
            assert versions == [v + i % 2 for v in (0, 2, 2)][: len(versions)]
    assert max(len(t.turns) for t in found if t.attempts == 1) == 3


def test_rewritten_histories_are_branches_with_the_probabilities_of_teacher_forcing(policy):
    def play(world):
        return collect(policy, world, range(4), make_renderer=Forgetful)[0]

    episodes = play(World())
    assert max(len(t.branches) for t in episodes) == 3
    params = policy.init(jax.random.key(0))
    score = jax.jit(
        lambda tokens, segments: (
            token_logprobs(
                policy,
                params,
                policy.hidden(params, tokens, jnp.arange(256)[None], segments),
                tokens,
                chunk_size=64,
            ).logprob_BT
        )
    )
    for episode in episodes:
        assert len(episode.branches) == len(episode.turns)
        for branch in episode.branches:
            row = np.zeros((1, 256), np.int32)
            row[0, : branch.stop - branch.start] = episode.tokens[branch]
            segments = (np.arange(256) < branch.stop - branch.start)[None].astype(np.int32)
            scored = np.asarray(score(row, segments))[0, : branch.stop - branch.start]
            mask = episode.action_mask[branch]
            np.testing.assert_allclose(episode.logprobs[branch][mask], scored[mask], atol=2e-5)
    slow = World(delay=lambda task, step: 0.1 * ((task + step) % 3))
    assert [essence(t) for t in play(slow)] == [essence(t) for t in episodes]


def essence(trajectory):
    return (
        trajectory.item_id,
        trajectory.sample,
        trajectory.outcome,
        trajectory.tokens.tolist(),
        trajectory.logprobs.tolist(),
        trajectory.reward,
    )


@pytest.fixture(scope="module")
def calm(policy):
    return collect(policy, World(), range(6))[0]


@pytest.mark.slow
def test_episodes_return_in_the_order_of_the_requests(calm):
    assert [(t.item_id, t.sample) for t in calm] == [
        (f"textcraft_{i}", s) for i in range(6) for s in range(2)
    ]
    assert all(t.outcome in (Outcome.SUCCESS, Outcome.FAILURE, Outcome.HORIZON) for t in calm)
    assert len({t.outcome for t in calm}) > 1


def test_an_agent_sees_the_limit_of_its_episode(policy, calm):
    limits = dataclasses.replace(LIMITS, max_turns=2)
    told, _ = collect(policy, World(), range(2), limits=limits, show_turn_budget="every_turn")
    for i, trajectory in enumerate(told):
        shown = [m["content"] for m in trajectory.messages if m["role"] == "user"]
        assert shown[0] == f"task {i // 2}\nTurns left: 2."
        assert [text[-2:] for text in shown] == ["2.", "1."][: len(shown)]
        assert trajectory.first_observation == f"task {i // 2}"
    assert {len(t.turns) for t in told} >= {2}
    assert not any("urns" in m["content"] for t in calm for m in t.messages if m["role"] == "user")


def test_rewards_and_score_scale_are_those_of_the_environment(policy):
    percent = dataclasses.replace(ORIGINALS["textcraft"], reward_scale=0.01)
    found, _ = collect(policy, World(), range(6), facts=percent)
    assert {t.score for t in found} == {0, 1}
    assert all(t.score_scale == 0.01 for t in found)
    assert [t.reward for t in found] == pytest.approx([t.score * 0.01 for t in found])


@pytest.mark.slow
def test_slow_answers_in_any_order_do_not_change_episodes(policy, calm):
    slow = World(delay=lambda task, step: 0.05 * ((task * 7 + step * 3) % 5))
    again, _ = collect(policy, slow, range(6), rows=3)
    assert [essence(t) for t in again] == [essence(t) for t in calm]


BROKEN = {
    "status 500": (500, {"error": "boom"}),
    "an error with status 200": (200, {"error": "boom"}),
    "no JSON": (200, b"<html>"),
    "a missing key": (200, {"observation": "x", "done": False}),
    "a reward that is not a number": (200, {"observation": "x", "done": True, "reward": "1"}),
    "a dropped connection": DROP,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_an_episode_restarted_after_a_failed_step_is_the_same(policy, calm, kind):
    def fault(task, step, attempt):
        return BROKEN[kind] if task == 2 and step == 1 and attempt <= 2 else None

    again, statistics = collect(policy, World(fault), range(6))
    assert [essence(t) for t in again] == [essence(t) for t in calm]
    assert statistics.restarts == 2 and sum(statistics.env_errors.values()) == 2
    assert sum(t.attempts for t in again) == len(again) + 2


def test_a_task_that_always_fails_gives_no_reward_and_does_not_affect_others(policy, calm):
    def fault(task, step, attempt):
        return BROKEN["status 500"] if task == 2 and step == 1 else None

    again, statistics = collect(policy, World(fault), range(6))
    failed = [t for t in again if t.outcome is Outcome.ENV_ERROR]
    assert [t.item_id for t in failed] == ["textcraft_2"] * 2
    assert all(not t.outcome.is_valid and "500" in t.error and t.attempts == 3 for t in failed)
    others = [essence(t) for t in again if t.outcome is not Outcome.ENV_ERROR]
    assert others == [essence(t) for t in calm if t.item_id != "textcraft_2"]
    assert statistics.env_errors == {"http_status": 6}


def test_failed_samples_of_a_group_are_replaced_by_other_samples(policy):
    def fault(task, step, attempt):
        # The first four attempts fail: two attempts for each of the two samples.
        return BROKEN["status 500"] if step == 1 and attempt <= 4 else None

    again, statistics = collect(policy, World(fault), [3], max_attempts=2, max_replacements=1)
    assert all(t.outcome.is_valid for t in again)
    assert sorted(t.sample for t in again) == [2, 3]
    assert statistics.replaced == 2


SICK = {
    "every step": lambda step: step > 0,
    "every reset": lambda step: step == 0,
}


@pytest.mark.slow
@pytest.mark.parametrize("calls", SICK)
def test_a_temporary_server_failure_loses_no_episode(policy, calm, calls):
    """Checks a server failure that lasts longer than the attempts of all 12 episodes.

    Without patience, the rollout would give up every episode.
    """
    failures = itertools.count()

    def fault(task, step, attempt):
        is_sick = SICK[calls](step) and next(failures) < 40
        return BROKEN["status 500"] if is_sick else None

    again, statistics = collect(policy, World(fault), range(6), max_attempts=3)
    assert [essence(t) for t in again] == [essence(t) for t in calm]
    assert statistics.restarts == sum(statistics.env_errors.values()) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("calls", SICK)
def test_a_lasting_server_failure_ends_the_rollout_and_quotes_the_server(policy, calls):
    def fault(task, step, attempt):
        return (500, {"error": "out of memory"}) if SICK[calls](step) else None

    with pytest.raises(ServerUnavailable, match="textcraft server failed every .*out of memory"):
        collect(policy, World(fault), range(6), breaker_patience_s=1.0)  # reached


def test_a_rollout_without_any_valid_episode_is_an_error(policy):
    """Checks episodes that all start but fail later, which does not count as an outage."""

    def fault(task, step, attempt):
        return BROKEN["status 500"] if step == 2 - task % 2 else None

    with pytest.raises(ServerUnavailable, match="let none of 1 episodes|let none of 4 episodes"):
        collect(policy, World(fault), [0, 2], max_attempts=1, breaker_patience_s=1e9)


def test_a_hanging_answer_ends_at_the_timeout(policy, calm):
    hanging = World(delay=lambda task, step: 2 * PATIENCE_S if task == 1 and step == 1 else 0.0)

    class Impatient(HttpTransport):
        """Waits only a moment for the answers that hang."""

        def exchange(self, method, target, request, timeout_s, request_id=""):
            if target.endswith("/step") and hanging.sessions[request["id"]][0] == 1:
                timeout_s = 0.2  # reached
            return super().exchange(method, target, request, timeout_s, request_id)

    transport = Impatient(hanging.url, token=None, connections=8, **env_clients.LIMITS)
    again, statistics = collect(policy, hanging, [0, 1], max_attempts=1, transport=transport)
    assert {t.outcome for t in again if t.item_id == "textcraft_1"} == {Outcome.ENV_ERROR}
    assert statistics.env_errors == {"timeout": 2}
    assert [essence(t) for t in again[:2]] == [essence(t) for t in calm[:2]]


def restarted_at(call, world):
    """Returns a function that restarts a stopped world when it is called for the `call`-th time."""
    calls = []

    def restart_dead_servers():
        calls.append(1)
        if len(calls) == call:
            world.start(world.server.port)

    return restart_dead_servers


def test_a_server_that_died_before_the_rollout_is_restarted_before_its_first_call(policy, calm):
    world = World()
    world.stop()
    # these options make a single failed call an error
    impatient = dict(breaker_failures=1, breaker_patience_s=0.0)
    again, _ = collect(
        policy, world, range(6), restart_dead_servers=restarted_at(1, world), **impatient
    )
    assert [essence(t) for t in again] == [essence(t) for t in calm]


def test_a_dead_server_is_restarted_while_the_pool_retries_starts(policy, calm):
    world = World()
    world.stop()
    again, statistics = collect(
        policy, world, range(6), restart_dead_servers=restarted_at(3, world)
    )
    assert [essence(t) for t in again] == [essence(t) for t in calm]
    assert not statistics.env_errors  # the pool reports nothing before its patience ends


def test_a_stop_aborts_running_episodes_and_closes_their_sessions(policy):
    world = World(delay=lambda task, step: 0.2)
    questions = itertools.count(1)
    found, _ = collect(policy, world, range(9), group=1, should_stop=lambda: next(questions) > 5)
    assert len(found) == 9
    assert Outcome.ABORTED in {t.outcome for t in found}


def test_stopping_while_an_episode_waits_for_a_retry_ends_cleanly(policy, caplog):
    def fault(task, step, attempt):
        return (500, b"gone") if step == 1 else None

    # The stop function returns True once the failure is logged.
    stopped, _ = collect(
        policy, World(fault), [2], group=1, should_stop=lambda: bool(caplog.records)
    )
    assert [(t.outcome, t.attempts) for t in stopped] == [(Outcome.ABORTED, 1)]


def test_a_context_smaller_than_every_prompt_is_an_error(policy):
    limits = EpisodeLimits(max_turns=3, max_tokens=6, max_parse_errors=0)
    with pytest.raises(ContextTooSmallError, match="none of 4 prompts fits: the shortest has"):
        collect(policy, World(), [0, 1], limits=limits)
