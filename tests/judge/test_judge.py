"""Scores of finished episodes from a fake judge: retries, failures, cache, counts, stops."""

import json
import threading
import time

import pytest

from agentgym_jax.client.errors import EnvCause, ServerUnavailable
from agentgym_jax.episodes.trajectory import Outcome, to_record
from agentgym_jax.learner.experience import token_rewards
from agentgym_jax.rl.rl_metrics import judge_metrics
from agentgym_jax.rollout.shared import gather_episodes
from agentgym_jax.runs.atomic_files import RunFolderError
from agentgym_jax.telemetry.metrics import lookup
from tests.builders import experience_of, trajectory
from tests.fake_server import DROP
from tests.judge.judge_parts import KEY, collect, episode, make_judge, never, verdict

BUSY = (503, b"busy")


def test_an_episode_has_the_score_and_the_reason_of_the_judge(fake, tmp_path):
    (found,), _ = collect(make_judge(fake, tmp_path), episode(score=1.0))
    assert (found.judge_score, found.judge_reason) == (0.7, "fine")
    assert (found.outcome, found.score) == (Outcome.FAILURE, 1.0)
    rewards = token_rewards(found, reward="judge", failed_turn_penalty=0.0)
    assert rewards.tolist() == pytest.approx([0.0, 0.7])


def test_an_episode_without_a_score_has_no_reward():
    with pytest.raises(ValueError, match="no judge has scored"):
        token_rewards(episode(), reward="judge", failed_turn_penalty=0.0)


def test_invalid_episodes_and_episodes_without_turns_are_not_judged(fake, tmp_path):
    broken = episode(outcome=Outcome.ENV_ERROR)
    full = trajectory("p", [], outcome=Outcome.CONTEXT_FULL)
    found, statistics = collect(make_judge(fake, tmp_path), broken, full, episode())
    assert found[:2] == [broken, full] and len(fake.bodies()) == 1
    assert statistics.judge["failed"] == 0


def test_episodes_keep_their_order(fake, tmp_path):
    def scored(request):
        conversation = json.loads(request.json()["messages"][1]["content"])
        number = int(conversation[1]["content"])
        time.sleep(0.02 * (5 - number))
        return verdict(score=number)

    fake.answers = [scored] * 5
    found, _ = collect(make_judge(fake, tmp_path, workers=5), *[episode(str(i)) for i in range(5)])
    assert [t.judge_score for t in found] == [0.0, 0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize("fault", [BUSY, DROP, verdict("I'd say 8"), verdict(11), (200, b"{}")])
def test_a_request_is_repeated_after_a_temporary_failure_or_an_unclear_answer(
    fake, tmp_path, fault
):
    fake.answers = [fault]
    (found,), statistics = collect(make_judge(fake, tmp_path), episode())
    assert found.judge_score == 0.7
    assert statistics.judge["requests"] == 2 and statistics.judge["failed"] == 0


def test_a_refused_request_is_not_repeated(fake, tmp_path):
    fake.answers = [(400, b"too long")]
    found, statistics = collect(make_judge(fake, tmp_path), episode("a"), is_part=True)
    assert found[0].outcome is Outcome.JUDGE_ERROR and "status 400: too long" in found[0].error
    assert statistics.judge["requests"] == 1


def test_an_episode_without_a_verdict_is_invalid_and_not_trained_on(fake, tmp_path):
    judge = make_judge(fake, tmp_path, workers=1, attempts=2)
    fake.answers = [verdict("8 of 10"), verdict("8 of\n10"), verdict(10), verdict(2)]
    found, statistics = collect(judge, episode("a"), episode("b"), episode("c"))
    assert [t.outcome.is_valid for t in found] == [False, True, True]
    assert found[0].outcome is Outcome.JUDGE_ERROR and found[0].judge_score is None
    assert "8 of" in found[0].error and "\n" not in found[0].error
    assert statistics.judge["failed"] == 1
    experience = experience_of(found, "dr_grpo", group_size=3, max_tokens=4, reward="judge")
    assert experience.episodes.valid_B.tolist() == [False, True, True]
    # the mean of the group is that of the two scored episodes
    assert experience.advantage_BT[:, 1].tolist() == pytest.approx([0.0, 0.4, -0.4])


def test_a_judge_that_fails_in_all_valid_episodes_stops_the_run_with_one_line(fake, tmp_path):
    judge = make_judge(fake, tmp_path, attempts=1)
    fake.answers = [(500, b"line\nbreak")] * 2
    played = [episode("a"), episode("b"), episode("c", outcome=Outcome.ENV_ERROR)]
    with pytest.raises(ServerUnavailable, match=r"scored none of 2 episodes.*status 500") as raised:
        collect(judge, *played)
    assert raised.value.cause is EnvCause.JUDGE and "\n" not in str(raised.value)
    assert "config.judge" in str(raised.value)


def test_one_of_several_processes_leaves_that_decision_to_the_caller(fake, tmp_path):
    fake.answers = [BUSY]
    found, _ = collect(make_judge(fake, tmp_path, attempts=1), episode(), is_part=True)
    assert found[0].outcome is Outcome.JUDGE_ERROR


def test_a_conversation_is_judged_once(fake, tmp_path):
    judge = make_judge(fake, tmp_path)
    found, statistics = collect(judge, episode("a"), episode("a", sample=1), episode("b"))
    assert [t.judge_score for t in found] == [0.7] * 3 and len(fake.bodies()) == 2
    assert statistics.judge["cached"] == 1
    resumed = make_judge(fake, tmp_path)
    again, statistics = collect(resumed, episode("a"), episode("b"))
    assert [t.judge_reason for t in again] == ["fine"] * 2 and len(fake.bodies()) == 2
    assert (statistics.judge["cached"], statistics.judge["requests"]) == (2, 0)
    collect(make_judge(fake, tmp_path, rubric="Be polite."), episode("a"))
    assert len(fake.bodies()) == 3


def test_a_failure_is_not_kept_for_a_resumed_run(fake, tmp_path):
    fake.answers = [BUSY]
    collect(make_judge(fake, tmp_path, attempts=1), episode(), is_part=True)
    (found,), _ = collect(make_judge(fake, tmp_path), episode())
    assert found.judge_score == 0.7


def test_counts_include_the_tokens_of_unclear_answers(fake, tmp_path):
    fake.answers = [verdict("hm")]
    found, statistics = collect(make_judge(fake, tmp_path), episode("a"), episode("b"))
    metrics = judge_metrics(found, statistics)
    assert metrics.pop("time/judge_s") > 0
    assert metrics == {
        "judge/requests": 3.0,
        "judge/cached": 0.0,
        "judge/failed": 0.0,
        "judge/prompt_tokens": 300.0,
        "judge/completion_tokens": 30.0,
        "judge/cost": pytest.approx(300e-6 + 60e-6),
        "judge/score_mean": pytest.approx(0.7),
    }
    assert all(lookup(name) for name in metrics)


def test_a_judge_without_any_score_has_no_mean_score(fake, tmp_path):
    fake.answers = [BUSY]
    found, statistics = collect(make_judge(fake, tmp_path, attempts=1), episode(), is_part=True)
    assert "judge/score_mean" not in judge_metrics(found, statistics)


def test_at_most_the_configured_number_of_requests_runs_at_the_same_time(fake, tmp_path):
    lock, running, most = threading.Lock(), [0], [0]

    def slow(request):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.05)
        with lock:
            running[0] -= 1
        return verdict()

    fake.answers = [slow] * 9
    collect(make_judge(fake, tmp_path, workers=3), *[episode(str(i)) for i in range(9)])
    assert most == [3]


def test_a_stop_waits_neither_for_the_judge_nor_for_retries(fake, tmp_path):
    hold = threading.Event()
    fake.answers = [lambda request: hold.wait() and verdict(), BUSY, BUSY]
    judge = make_judge(fake, tmp_path, attempts=1000)
    played = [episode(str(i)) for i in range(4)]
    found, _ = collect(judge, *played, should_stop=lambda: bool(fake.server.requests))
    assert Outcome.ABORTED in {t.outcome for t in found}
    hold.set()


def test_the_episodes_of_an_aborted_rollout_are_not_judged(fake, tmp_path):
    played = [episode(outcome=Outcome.ABORTED), episode()]
    assert collect(make_judge(fake, tmp_path), *played)[0] == played
    assert not fake.bodies()


def test_the_key_is_sent_and_never_written(fake, tmp_path, caplog):
    judge = make_judge(fake, tmp_path, key=KEY, attempts=1, workers=1)
    fake.answers = [
        verdict(reason=f"key {KEY}"),
        (401, f"bad key {KEY}".encode()),
        verdict(f"no {KEY}"),
    ]
    found, _ = collect(judge, episode("a"), episode("b"), episode("c"))
    assert all(r.headers["Authorization"] == f"Bearer {KEY}" for r in fake.server.requests)
    written = json.dumps([to_record(t) for t in found]) + caplog.text
    written += (tmp_path / "judge_cache.jsonl").read_text()
    assert "***" in written and KEY not in written
    assert "JUDGE_KEY, which was refused" in found[1].error


def test_a_cache_that_cannot_be_written_ends_the_run(fake, tmp_path):
    judge = make_judge(fake, tmp_path / "missing")
    with pytest.raises(RunFolderError, match="judge_cache"):
        collect(judge, episode(), should_stop=never)


def test_scores_and_counts_reach_the_other_processes(fake, tmp_path):
    own, statistics = collect(make_judge(fake, tmp_path), episode(), is_part=True)
    ((found, gathered),) = gather_episodes(lambda: (own, statistics))
    assert found[0].judge_score == 0.7
    assert gathered.judge == statistics.judge
    assert (gathered + statistics).judge["requests"] == 2
