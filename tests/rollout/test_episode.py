"""Episodes as a state machine, tested with literal inputs."""

import sys

import numpy as np
import pytest

from agentgym_jax.client.actions import ParsedAction
from agentgym_jax.client.answers import Observation
from agentgym_jax.data.tasks import Task
from agentgym_jax.episodes.trajectory import Outcome, TokenSource
from agentgym_jax.rollout.episode import (
    AgentTurn,
    Append,
    Episode,
    Finish,
    Send,
)
from tests.builders import episode_request

STOP = 99


class Letters:
    """A renderer with readable tokens: the token of a word is its length, markers start at 90."""

    def opening(self, messages):
        return [
            [90, *(len(m["content"]) for m in messages[:-1])],
            [91, len(messages[-1]["content"])],
        ]

    def continuation(self, messages, ended_by_stop):
        closing = [94] if ended_by_stop else [STOP, 94]
        return [*closing, 92, len(messages[-1]["content"]), 93]

    def start_of(self, text, tokens):
        return text


def make(max_turns=3, max_tokens=100, max_parse_errors=1):
    request = episode_request(
        Task("textcraft", 7, "depth 1"),
        sample=2,
        step=5,
        max_turns=max_turns,
        max_tokens=max_tokens,
        max_parse_errors=max_parse_errors,
        max_turn_tokens=9,
    )
    preamble = ({"role": "system", "content": "rules"},)
    return Episode(request, renderer=Letters(), preamble=preamble)


def say(episode, tokens=(10, 11, STOP), *, action="go", is_stopped=True):
    turn = AgentTurn(
        row=0,
        text="Action: go",
        is_stopped=is_stopped,
        tokens=np.array(tokens, np.int32),
        logprobs=-0.5 * np.ones(len(tokens), np.float32),
        version=5,
    )
    return episode.act(turn, ParsedAction(action, None if action else "no action"))


def answer(episode, reward=0.0, done=False, success=False, text="seen", is_rejection=False):
    return episode.observe(Observation(text, reward, reward, done, success, is_rejection))


def test_a_solved_episode_has_every_token_once_with_its_source():
    episode = make()
    assert episode.begin("start") == Append([[90, 5], [91, 5]])
    assert say(episode) == Send("go")
    assert answer(episode) == Append([[94, 92, 4, 93]])
    assert say(episode, (12, STOP)) == Send("go")
    assert answer(episode, reward=1.0, done=True, success=True) == Finish(Outcome.SUCCESS)
    t = episode.trajectory(attempts=1, seconds=0.1)
    assert t.tokens.tolist() == [90, 5, 91, 5, 10, 11, STOP, 94, 92, 4, 93, 12, STOP]
    sources = (TokenSource.PROMPT, TokenSource.OBSERVATION, TokenSource.ACTION)
    prompt, seen, act = (int(s) for s in sources)
    assert t.sources.tolist() == [prompt] * 4 + [act] * 3 + [seen] * 4 + [act] * 2
    assert (t.success, t.reward, t.item_id, t.sample) == (True, 1.0, "textcraft_7", 2)
    assert t.policy_versions.tolist() == [-1] * 4 + [5] * 3 + [-1] * 4 + [5] * 2


class Forgetful(Letters):
    """A renderer of a template that changes every answer when a message follows."""

    def opening(self, messages):
        return [[90, 5], [len(m["content"]) for m in messages]]

    def continuation(self, messages, ended_by_stop):
        return None


def test_a_rewritten_turn_begins_a_branch(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "Letters", Forgetful)
    episode = make(max_turns=3, max_tokens=12)
    assert episode.begin("start") == Append([[90, 5], [5, 5]])
    say(episode)
    assert answer(episode) == Append([[4]], branch=1, kept=5)
    assert say(episode, (12, STOP)) == Send("go")
    assert answer(episode, text="ok") == Append([[10, 2]], branch=2, kept=6)
    say(episode)
    assert answer(episode, text="last") == Finish(Outcome.HORIZON)
    t = episode.trajectory(attempts=1, seconds=0)
    assert t.branch_starts == (7, 15)
    assert [t.tokens[b].tolist() for b in t.branches] == [
        [90, 5, 5, 5, 10, 11, STOP],
        [90, 5, 5, 5, 10, 4, 12, STOP],
        [90, 5, 5, 5, 10, 4, 10, 2, 10, 11, STOP],
    ]
    assert [int(t.sources[b].max()) for b in t.branches] == [int(TokenSource.ACTION)] * 3
    assert [turn.action_start for turn in t.turns] == [4, 13, 23]


def test_a_branch_that_does_not_fit_ends_the_episode(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "Letters", Forgetful)
    episode = make(max_turns=3, max_tokens=6)
    episode.begin("start")
    say(episode, (STOP,))
    assert answer(episode) == Finish(Outcome.CONTEXT_FULL)


def test_the_reward_of_the_last_turn_is_on_its_last_action_token():
    episode = make()
    episode.begin("start")
    say(episode)
    answer(episode, reward=1.0, done=True, success=True, text="a long last observation")
    rewards = episode.trajectory(attempts=1, seconds=0).token_rewards()
    assert rewards.tolist() == [0, 0, 0, 0, 0, 0, 1.0]


def test_a_score_is_recorded_with_its_scale():
    episode = make()
    episode.begin("start")
    say(episode)
    episode.observe(Observation("seen", 0.17, 17, True, False, score_scale=0.01))
    t = episode.trajectory(attempts=1, seconds=0.1)
    assert (t.score, t.score_scale) == (17, 0.01)


def test_rejected_actions_and_parse_errors_are_failed_turns():
    episode = make(max_turns=4)
    episode.begin("start")
    say(episode)
    answer(episode)
    say(episode)
    answer(episode, is_rejection=True)
    say(episode, action=None)
    say(episode)
    answer(episode, done=True)
    turns = episode.trajectory(attempts=1, seconds=0).turns
    assert [t.is_rejected for t in turns] == [False, True, False, False]
    assert [t.is_failed for t in turns] == [False, True, True, False]


def test_an_episode_that_reaches_the_horizon_is_truncated_and_not_failed():
    episode = make(max_turns=1)
    episode.begin("start")
    say(episode)
    assert answer(episode, reward=0.25) == Finish(Outcome.HORIZON)
    t = episode.trajectory(attempts=1, seconds=0)
    assert t.outcome.is_truncated and t.outcome.is_valid and t.reward == 0.25
    assert t.tokens[-1] == STOP


def test_the_last_turn_may_still_solve_the_task():
    episode = make(max_turns=1)
    episode.begin("start")
    say(episode)
    assert answer(episode, reward=1.0, done=True, success=True) == Finish(Outcome.SUCCESS)


def test_a_truncated_turn_is_closed_by_untrained_tokens():
    episode = make()
    episode.begin("start")
    say(episode, (10, 11), is_stopped=False)
    assert answer(episode) == Append([[STOP, 94, 92, 4, 93]])
    say(episode)
    answer(episode, done=True)
    t = episode.trajectory(attempts=1, seconds=0)
    assert t.turns[0].is_cut and not t.turns[1].is_cut
    assert t.tokens[t.action_mask].tolist() == [10, 11, 10, 11, STOP]


def test_a_parse_error_is_answered_without_a_request():
    episode = make(max_parse_errors=1)
    episode.begin("start")
    assert say(episode, action=None) == Append([[94, 92, len("no action"), 93]])
    assert say(episode, action=None) == Finish(Outcome.PARSE_ERRORS)
    t = episode.trajectory(attempts=1, seconds=0)
    assert t.outcome.is_valid and t.reward == 0.0 and t.turns[0].action is None


def test_an_observation_that_does_not_fit_ends_the_episode_as_truncated():
    episode = make(max_tokens=11)
    episode.begin("start")
    say(episode)
    assert answer(episode) == Finish(Outcome.CONTEXT_FULL)
    assert len(episode.trajectory(attempts=1, seconds=0).tokens) == 7


def test_a_prompt_that_does_not_fit_ends_the_episode_before_its_first_turn():
    episode = make(max_tokens=4)
    assert episode.begin("start") == Finish(Outcome.CONTEXT_FULL)
    assert episode.trajectory(attempts=1, seconds=0).turns == ()


def test_a_failed_environment_leaves_an_invalid_record_with_its_cause():
    episode = make()
    episode.begin("start")
    say(episode)
    assert episode.fail(Outcome.ENV_ERROR, "timeout") == Finish(Outcome.ENV_ERROR)
    t = episode.trajectory(attempts=3, seconds=0)
    assert not t.outcome.is_valid and t.error == "timeout" and t.attempts == 3


def test_a_running_episode_has_no_record():
    with pytest.raises(ValueError, match="not ended"):
        make().trajectory(attempts=1, seconds=0)
