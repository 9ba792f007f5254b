"""Scripted, random and threaded agents, evaluated in a real environment."""

import pytest

from agentgym_jax.client.actions import ActionFormat
from agentgym_jax.client.errors import EnvCause, EnvError, ServerUnavailable
from agentgym_jax.client.oracle_clients import ExpertClient, ValidActionsClient
from agentgym_jax.episodes.trajectory import Outcome, from_record, to_record
from agentgym_jax.evaluation.text_agents import AgentError, ScriptedAgent
from agentgym_jax.rollout.agents import Answer, PromptTooLongError
from tests.evaluation.playing_parts import ALL_TASKS, CLIENTS, actions, maze, play, stumbling


class Talker:
    """An agent in threads whose answer is a function of the current state."""

    concurrency = 3
    may_wait = True

    def __init__(self, say):
        self.say = say
        self.seen = []
        self.is_closed = False

    def answer(self, moment):
        self.seen.append(moment)
        return self.say(moment)

    def close(self):
        self.is_closed = True


def test_the_expert_solves_every_maze_and_its_records_round_trip():
    with maze("expert") as collector:
        result = play(collector)
    assert all(e.outcome is Outcome.SUCCESS and e.score == 1 for e in result.sampled)
    for trajectory in result.trajectories:
        again = from_record(to_record(trajectory))
        assert again.turns == trajectory.turns and again.messages == trajectory.messages
        roles = [m["role"] for m in trajectory.messages]
        assert roles == ["system"] + ["user", "assistant"] * len(trajectory.turns)


def test_the_random_agent_depends_only_on_seed_item_and_sample():
    with maze("random") as collector:
        together = play(collector, samples=2).trajectories
        alone = play(collector, ALL_TASKS[3:4], samples=2).trajectories
        other = play(collector, ALL_TASKS[3:4], samples=2, seed=1).trajectories
    assert [actions(t) for t in together[6:8]] == [actions(t) for t in alone]
    assert actions(alone[0]) != actions(alone[1])
    assert actions(alone[0]) != actions(other[0])


def test_the_random_agent_draws_uniformly():
    with maze("random") as collector:
        moves = [a for t in play(collector, samples=12).trajectories for a in actions(t)]
    assert len(moves) > 500  # about 900 draws, each among about two open directions
    counts = [moves.count(move) for move in ("move up", "move down", "move left", "move right")]
    assert min(counts) > 0 and sum(counts) == len(moves)


def test_a_threaded_agent_sees_the_conversation_with_its_parse_errors():
    talker = Talker(lambda moment: Answer("hm" if moment.turn == 0 else "Action: move left"))
    with maze(None, talker) as collector:
        result = play(collector, max_turns=3)
    for trajectory in result.trajectories:
        assert trajectory.outcome is Outcome.HORIZON
        assert trajectory.turns[0].action is None and not trajectory.turns[0].observation
        assert actions(trajectory)[1:] == ["move left"] * 2
        problem = trajectory.messages[3]["content"]
        assert problem.startswith("No action was found")
    last = [m for m in talker.seen if m.turn == 2]
    assert len(last) == len(ALL_TASKS)
    assert all(len(m.messages) == 6 and m.messages[-1]["role"] == "user" for m in last)


def test_too_many_parse_errors_end_an_episode():
    with maze(None, Talker(lambda moment: Answer("hm"))) as collector:
        result = play(collector)
    assert {(e.outcome, e.turns) for e in result.sampled} == {(Outcome.PARSE_ERRORS, 2)}


def test_a_conversation_beyond_the_context_ends_as_context_full():
    def say(moment):
        if moment.turn == 1:
            raise PromptTooLongError("too long")
        return Answer("Action: move up", is_stopped=False)

    with maze(None, Talker(say)) as collector:
        result = play(collector)
    assert {e.outcome for e in result.sampled} == {Outcome.CONTEXT_FULL}
    assert all(t.turns[0].is_cut for t in result.trajectories)


def test_a_failing_agent_stops_the_evaluation_and_finished_episodes_are_kept():
    def say(moment):
        if moment.request.task.data_idx == 5:
            raise AgentError("the quota is spent")
        return Answer("Action: move up")

    talker, kept = Talker(say), []
    with maze(None, talker) as collector:
        with pytest.raises(AgentError, match="quota"):
            play(collector, max_turns=2, on_episode=kept.append)
    assert talker.is_closed
    finished = [t for t in kept if t.outcome.is_valid]
    assert {t.item_id for t in finished} <= {f"maze_{i}" for i in range(5)}


def test_a_failing_environment_is_retried_and_never_counts_as_a_failure():
    with maze("expert", client_class=stumbling({1: 1, 2: 10**6})) as collector:
        # The tasks run one after another, because simultaneous failures of two tasks would count as
        # a server outage.
        results = [play(collector, ALL_TASKS[i : i + 1]) for i in range(3)]
    fine, again, lost = (result.trajectories[0] for result in results)
    assert (fine.outcome, fine.attempts) == (Outcome.SUCCESS, 1)
    assert (again.outcome, again.attempts, again.sample) == (Outcome.SUCCESS, 2, 0)
    # three attempts for the first sample, and three for the sample that replaces it
    assert (lost.outcome, lost.attempts) == (Outcome.ENV_ERROR, 6)
    assert not results[2].sampled[0].outcome.is_valid


def test_a_sample_whose_environment_keeps_failing_is_replaced():
    faulty = stumbling({3: 3}, ValidActionsClient)
    with maze("random", client_class=faulty) as collector:
        (replaced,) = play(collector, ALL_TASKS[3:4]).trajectories
    assert replaced.outcome.is_valid and (replaced.sample, replaced.attempts) == (1, 4)
    with maze("random") as collector:
        second = play(collector, ALL_TASKS[3:4], samples=2).trajectories[1]
    assert actions(replaced) == actions(second)


@pytest.mark.parametrize("kind", ["expert", "random"])
def test_an_environment_that_fails_all_episodes_ends_the_evaluation(kind):
    faulty = stumbling({i: 10**6 for i in range(6)}, CLIENTS[kind])
    with maze(kind, client_class=faulty, patience_s=0.5) as collector:  # reached
        with pytest.raises(ServerUnavailable, match="no answer"):
            play(collector)


def test_an_evaluation_without_any_valid_episode_is_an_error():
    """Checks that an evaluation fails if every episode starts but fails at a later step.

    These failures are not a server outage.
    """
    steps = {}

    class Later(ExpertClient):
        def reset(self, session, data_idx, request_id=""):
            steps[session] = data_idx % 2
            return super().reset(session, data_idx, request_id)

        def step(self, session, action, request_id=""):
            steps[session] -= 1
            if steps[session] < 0:
                raise EnvError(EnvCause.HTTP_STATUS, "no answer", retryable_from_reset=False)
            return super().step(session, action, request_id)

    # One worker fixes the order. If the first task failed last, both failures would be an outage.
    options = dict(max_attempts=1, max_replacements=0, patience_s=1e9, workers=1)
    with maze("expert", client_class=Later, **options) as collector:
        with pytest.raises(ServerUnavailable, match="let none of 2 episodes be played"):
            play(collector, ALL_TASKS[:2])


def test_a_scripted_agent_refuses_unsupported_action_formats():
    with pytest.raises(AgentError, match="environments.sciworld.action_format"):
        ScriptedAgent({"sciworld": ActionFormat.FUNCTION_CALLING})


def test_the_agents_texts_contain_the_turn_budget():
    talker = Talker(lambda moment: Answer("Action: move left"))
    with maze(None, talker, show_turn_budget="every_turn") as collector:
        play(collector, ALL_TASKS[:1], max_turns=2)
    assert [m.messages[-1]["content"].splitlines()[-1] for m in talker.seen] == [
        "Turns left: 2.",
        "Turns left: 1.",
    ]


def test_stopping_while_an_episode_waits_for_a_retry_ends_cleanly(caplog):
    with maze("expert", client_class=stumbling({2: 10**6})) as collector:
        # The stop function returns True once the failure is logged.
        result = play(collector, ALL_TASKS[2:3], stop=lambda: bool(caplog.records))
        assert not collector.pool._episodes
    assert [(t.outcome, t.attempts) for t in result.trajectories] == [(Outcome.ABORTED, 1)]
