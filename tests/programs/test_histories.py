"""The shipped programs with several conversations: compaction and delegation to a sub-agent."""

import contextlib

import jax
import numpy as np
import pytest

from agentgym_jax.episodes.batch import pack
from agentgym_jax.episodes.trajectory import Outcome
from agentgym_jax.learner.turn_masks import turn_masks
from agentgym_jax.learner.update import make_score
from agentgym_jax.programs import compaction, delegation, react
from agentgym_jax.programs.task import AgentTask
from agentgym_jax.rollout.episode import EpisodeLimits
from tests.fake_server import FakeServer
from tests.learner.learner_parts import experience_of, pack_all
from tests.programs.played_programs import Setup, function
from tests.rollout.world import World

LIMITS = EpisodeLimits(max_turns=8, max_tokens=240, max_parse_errors=8)


class Scripted:
    """Endpoint of an episode: scripted answers, and observations `seen 1`, `seen 2`, ...

    An answer is its text, or a pair of the text and the number of tokens so far (else 10).
    """

    def __init__(self, answers, ends_after=100):
        self.answers = list(answers)
        self.ends_after = ends_after
        self.chats = []  # bodies of the chat requests
        self.timeouts = []  # of the client, as its requests say
        self.acts = []

    def answer(self, request):
        body = request.json()
        if request.path.endswith("/chat/completions"):
            self.chats.append(body)
            self.timeouts.append(request.headers.get("x-stainless-read-timeout"))
            script = self.answers[len(self.chats) - 1]
            text, tokens = script if isinstance(script, tuple) else (script, 10)
            message = {"role": "assistant", "content": text}
            usage = dict(prompt_tokens=tokens - 1, completion_tokens=1, total_tokens=tokens)
            choice = dict(index=0, message=message, finish_reason="stop")
            made = dict(id="a", object="chat.completion", created=0, model="m")
            return 200, made | dict(choices=[choice], usage=usage)
        if request.path.endswith("/act"):
            self.acts.append(body["answer"])
        done = len(self.acts) >= self.ends_after
        seen = f"seen {len(self.acts)}" if self.acts else "the task"
        return 200, dict(observation=seen, reward=0.0, done=done, success=done)

    def play(self, program, *, max_turns=20, instructions="", **options):
        """Plays a program; returns the conversations: texts of the messages of every request."""
        with contextlib.closing(FakeServer(self.answer).start()) as server:
            server.close = server.stop
            task = AgentTask(f"{server.url}/v1", "none", "m", "e", 0, 0, max_turns, instructions)
            assert program(task, **options) is None
        return [[m["content"] for m in chat["messages"]] for chat in self.chats]


def test_a_request_may_wait_for_an_update_of_any_length():
    script = Scripted(["a"], ends_after=1)
    script.play(react.play)
    assert script.timeouts == [None]


def test_a_summary_replaces_a_history_that_is_too_long():
    script = Scripted(["a", ("b", 31), " so far ", "c", "d"], ends_after=4)
    chats = script.play(
        compaction.play, instructions="rules", compact_above=30, summary_tokens=7, request="sum up"
    )
    assert chats[2] == ["rules", "the task", "a", "seen 1", "b", "sum up"]
    start = ["rules", "the task\n\nSummary: so far\n\nseen 2"]
    assert chats[3:] == [start, [*start, "c", "seen 3"]]
    assert script.acts == ["a", "b", "c", "d"]
    assert [chat.get("max_tokens") for chat in script.chats] == [None, None, 7, None, None]


def test_a_history_without_an_allowed_or_useful_summary_is_dropped():
    for summary_tokens, answers in ((0, [("a", 31), "b"]), (5, [("a", 31), " \n", "b"])):
        script = Scripted(answers, ends_after=2)
        chats = script.play(compaction.play, compact_above=30, summary_tokens=summary_tokens)
        assert chats[-1] == ["the task\n\nseen 1"]
        assert script.acts == ["a", "b"]


def test_thinking_is_no_summary_order_or_report():
    script = Scripted([("a", 31), "<think>so</think> far", "b"], ends_after=2)
    chats = script.play(compaction.play, compact_above=30)
    assert chats[-1] == ["the task\n\nSummary: far\n\nseen 1"]
    thinking = "<think>\nDelegate: x\nReport: y</think>"
    script = Scripted(
        [f"{thinking}a", "Delegate: z", f"{thinking}b", "Report: r", "c"], ends_after=3
    )
    chats = script.play(delegation.play)
    assert script.acts == [f"{thinking}a", f"{thinking}b", "c"]
    assert chats[2][-1] == "z\n\nseen 1"


def test_compactions_are_limited_in_number_and_by_the_turns_left():
    long = [(letter, 31) for letter in "abcdef"]
    script = Scripted(long, ends_after=4)
    assert len(script.play(compaction.play, compact_above=30, max_compactions=1)) == 5
    script = Scripted(long)  # a, summary b, c; a summary would be the last of the turns
    assert len(script.play(compaction.play, max_turns=4, compact_above=30)) == 4
    assert script.acts == ["a", "c", "d"]


def test_the_report_of_a_sub_agent_is_the_next_observation():
    script = Scripted(["Delegate: look around", "a", "Report: a door", "b"], ends_after=2)
    chats = script.play(
        delegation.play, instructions="rules", main_instructions="M", assistant_instructions="A"
    )
    assert chats[1] == ["rules\n\nA", "look around\n\nthe task"]
    order, report = "Delegate: look around", "Report: a door\n\nseen 1"
    assert chats[3] == ["rules\n\nM", "the task", order, report]
    assert script.acts == ["a", "b"]


def test_a_sub_agent_is_limited_in_turns_number_and_depth():
    order = "Delegate: x"
    script = Scripted([order, "a", order, "b", order, "c"], ends_after=3)
    chats = script.play(delegation.play, max_delegations=1, assistant_turns=3)
    assert chats[3][-1] == f"{delegation.REFUSED}\n\nseen 1"  # a sub-agent has no sub-agent
    assert chats[4][-1] == f"Report: {delegation.NO_REPORT}\n\nseen 2"
    assert chats[5][-1] == f"{delegation.REFUSED}\n\nseen 2"  # there was one already
    assert script.acts == ["a", "b", "c"]


@pytest.mark.parametrize("max_turns", [1, 3])
def test_an_episode_ends_with_its_turns_or_its_environment_in_a_sub_agent(max_turns):
    script = Scripted(["Delegate: x", "a", "b", "c"], ends_after=3)
    assert len(script.play(delegation.play, max_turns=max_turns)) == max_turns
    script = Scripted(["Delegate: x", "a"], ends_after=1)
    assert len(script.play(delegation.play)) == 2


@pytest.fixture
def setup(policy):
    return Setup(policy, World())


def compacted(task):
    """Compacts its history after every action; the policy of the tests writes few tokens."""
    compaction.play(task, compact_above=1, summary_tokens=5)


def patient(task):
    """Never compacts its history."""
    compaction.play(task, compact_above=1000)


@pytest.fixture
def delegating(monkeypatch):
    """Returns a program in which grammars make a random policy delegate, act, report, and act."""
    plain = react.Policy.answer

    def answer(self, messages, **options):
        is_main, is_first = messages[0]["content"] == "M", len(messages) == 2
        word = "" if is_main != is_first else "Delegate: " if is_main else "Report: "
        form = dict(guided_regex=f"{word}[a-z]{{3}}")
        return plain(self, messages, max_tokens=16, extra_body=form, **options)

    monkeypatch.setattr(react.Policy, "answer", answer)
    return lambda task: delegation.play(
        task, assistant_turns=2, main_instructions="M", assistant_instructions="A"
    )


def gap(setup, policy, episodes):
    """Returns the largest difference between log-probabilities of sampler and learner."""

    def sequence(t, branch):
        arrays = {"tokens": t.tokens, "action_mask": t.action_mask, "sampler_logprobs": t.logprobs}
        own = {name: values[branch] for name, values in arrays.items()}
        return own | turn_masks(t, branch, setup.grammars)

    sequences = [sequence(t, branch) for t in episodes for branch in t.branches]
    batch = pack(sequences, row_length=256, rows_multiple=4)
    score = make_score(policy, temperature=1.0, logprob_chunk=64)
    found = np.asarray(score(policy.init(jax.random.key(0)), batch)[0]) - batch.sampler_logprobs
    return np.abs(found)[batch.action_mask].max()


@pytest.mark.slow
def test_a_program_that_never_compacts_has_the_tokens_of_react(setup):
    ours, _ = setup.play(function(patient), range(4), limits=LIMITS)
    theirs, _ = setup.play(function(react.play), range(4), limits=LIMITS)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.tokens, b.tokens)
        np.testing.assert_array_equal(a.logprobs, b.logprobs)
        assert a.turns == b.turns


def test_all_conversations_of_a_compacted_episode_are_trained_as_sampled(setup, policy):
    episodes, statistics = setup.play(function(compacted), range(8), limits=LIMITS)
    assert {t.outcome for t in episodes} <= {Outcome.SUCCESS, Outcome.FAILURE, Outcome.HORIZON}
    assert max(len(t.branches) for t in episodes) > 2
    assert statistics.forks == 0
    for t in episodes:
        summaries = [turn for turn in t.turns if turn.observation == ""]
        assert len(summaries) == len(t.branches) - 1
        assert all(turn.action_stop - turn.action_start <= 5 for turn in summaries)
        assert not any(turn.reward for turn in summaries)
        assert t.reward == t.score
    assert gap(setup, policy, episodes) < 2e-5


@pytest.mark.slow
def test_all_conversations_of_a_sub_agent_are_trained_as_sampled(setup, policy, delegating):
    episodes, _ = setup.play(function(delegating), range(8), limits=LIMITS)
    assert {t.outcome for t in episodes} <= {Outcome.SUCCESS, Outcome.FAILURE, Outcome.HORIZON}
    assert max(len(t.branches) for t in episodes) == 2
    assert all(t.reward == t.score for t in episodes)
    # The turns of the main conversation are first in the record.
    assert {t.turns[0].text[:-3] for t in episodes} == {"Delegate: "}
    assert {t.turns[-1].text[:-3] for t in episodes} == {"Report: "}
    assert gap(setup, policy, episodes) < 2e-5


def test_every_conversation_has_the_advantage_of_its_episode_and_shares_its_weight(setup):
    episodes, _ = setup.play(function(compacted), range(8), limits=LIMITS)
    assert len({t.success for t in episodes}) == 2
    assert len({len(t.branches) for t in episodes}) > 1
    options = dict(std_normalize=False)
    made = experience_of(episodes, max_tokens=256, advantage_options=options)
    share = np.mean([t.success for t in episodes])
    for t, advantage_T in zip(episodes, made.advantage_BT, strict=True):
        for branch in t.branches:
            own = advantage_T[branch][t.action_mask[branch]]
            np.testing.assert_allclose(own, t.success - share, rtol=1e-5)
    batch = pack_all(made, row_length=256, aggregation_options=dict(mode="sequence_mean"))
    assert batch.sequence_ids.max() + 1 == sum(len(t.branches) for t in episodes)
    assert not batch.weights[~batch.action_mask].any()
    found = batch.weights[batch.action_mask]
    each = [1 / 8 / int(t.action_mask.sum()) for t in episodes for _ in range(t.action_mask.sum())]
    np.testing.assert_allclose(np.sort(found), np.sort(each), rtol=1e-5)
