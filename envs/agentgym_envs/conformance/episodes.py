"""Properties of an environment, checked in this process without a server."""

import contextlib
import functools
import itertools
import json
import math
import re
from typing import Any

from agentgym_envs.base.protocol import SCORE_TOLERANCE
from agentgym_envs.conformance import other_process
from agentgym_envs.conformance.subject import (
    NotApplicable,
    Play,
    Subject,
    Transcript,
    Violation,
    check_replay,
    check_same,
    shorten,
)

_REFUSED_SHARE = 0.2  # tolerated share of valid actions that are rejected


def results_have_the_declared_types(subject: Subject) -> str:
    """Checks that observations are texts, rewards and scores finite, and `done` a bool.

    `Play` refuses results of other types; this check adds that no text is empty.
    """
    count = 0
    for transcript in subject.transcripts:
        for turn, result in enumerate(transcript.results):
            if not result.observation.strip():
                raise Violation(
                    f"task {transcript.data_idx} after {turn} actions: the observation is "
                    f"{result.observation!r}, expected a text that is not empty"
                )
            count += 1
        if transcript.first.done:
            raise Violation(f"task {transcript.data_idx} is over before the first action")
    return f"{count} answers in {len(subject.transcripts)} tasks"


def the_score_is_the_sum_of_the_rewards(subject: Subject) -> None:
    """Checks that the score is the sum of the rewards and never above `max_score`.

    AgentGym's scores under `--compat` follow other rules, so this check skips them.
    """
    if subject.compat:
        raise NotApplicable("AgentGym's scores follow other rules")
    best = subject.served.spec.max_score
    for transcript in subject.transcripts:
        total = 0.0
        for turn, result in enumerate(transcript.results):
            total += result.reward
            where = f"task {transcript.data_idx} after {turn} actions"
            if not math.isclose(total, result.score, abs_tol=SCORE_TOLERANCE):
                raise Violation(f"{where}: score {result.score}, the rewards add up to {total}")
            if result.score > best + SCORE_TOLERANCE:
                raise Violation(f"{where}: score {result.score}, max_score is {best}")


def a_task_depends_only_on_its_index(subject: Subject) -> None:
    """Checks that a reset gives the same observation in a new and in a used environment."""
    used = subject.play()
    for transcript in (*subject.transcripts, *reversed(subject.transcripts)):
        first = used.reset(transcript.data_idx)
        where = f"{used.moment}, in an environment that was used before"
        check_same(first, transcript.first, where, used.place)
        fresh = subject.play()
        again = fresh.reset(transcript.data_idx)
        check_same(again, transcript.first, f"{fresh.moment}, anew", fresh.place)
        fresh.close()
        for action in transcript.actions[:3]:
            if used.step(action).done:
                break
    used.close()


def the_same_actions_have_the_same_answers(subject: Subject) -> None:
    """Checks that repeated actions give the same results without requests for valid actions."""
    for transcript in subject.transcripts:
        play = subject.play()
        check_replay(transcript, play)
        play.close()


def another_process_gives_the_same_answers(subject: Subject) -> None:
    """Checks that another process, with another hash seed and task order, has the same results."""
    for transcript, found in zip(subject.transcripts, _elsewhere(subject)[0], strict=True):
        _check_elsewhere(transcript, found, start=0)


# cached, because starting another process takes seconds
@functools.lru_cache(maxsize=1)
def _elsewhere(subject: Subject) -> tuple[list, list]:
    """Runs all episodes in another process.

    If the environment has snapshots, the second half of each episode also runs from a snapshot.
    """
    backwards = subject.transcripts[::-1]
    jobs: list[dict[str, Any]] = [{"data_idx": t.data_idx, "actions": t.actions} for t in backwards]
    with contextlib.suppress(NotApplicable, Violation):  # a separate property checks snapshots
        for transcript in backwards:
            half = _half(transcript)
            saved = _play_until(subject, transcript, half)
            jobs.append({"snapshot": saved.snapshot(), "actions": transcript.actions[half:]})
            saved.close()
    answers = other_process.play(subject, jobs)
    count = len(backwards)
    return answers[:count][::-1], answers[count:][::-1]


def _half(transcript: Transcript) -> int:
    return len(transcript.turns) // 2


def _play_until(subject: Subject, transcript: Transcript, actions: int) -> Play:
    play = subject.play()
    play.reset(transcript.data_idx)
    for action in transcript.actions[:actions]:
        play.step(action)
    return play


def two_sessions_do_not_influence_each_other(subject: Subject) -> None:
    """Checks that two interleaved episodes give the same answers as each episode alone."""
    neighbours = (*subject.transcripts[1:], subject.transcripts[0])
    for one, other in zip(subject.transcripts, neighbours, strict=True):
        plays = subject.play(), subject.play()
        for transcript, play in zip((one, other), plays, strict=True):
            first = play.reset(transcript.data_idx)
            check_same(first, transcript.first, _beside(play), play.place)
        for turns in itertools.zip_longest(one.turns, other.turns):
            for turn, play in zip(turns, plays, strict=True):
                if turn is not None:
                    check_same(play.step(turn.action), turn.result, _beside(play), play.place)
        for play in plays:
            play.close()


def _beside(play: Play) -> str:
    return f"{play.moment}, beside another session"


def the_scripted_agent_solves_tasks(subject: Subject) -> str:
    """Checks that the scripted agent solves at least one sampled task; reports the number."""
    attempts = subject.attempts
    solved = [a for a in attempts if a.is_solved]
    if not solved:
        worst = attempts[0]
        found = (
            f"score {worst.score}, done={worst.is_done} after {len(worst.actions)} actions, expected "
            f"a score of at least {subject.served.spec.success_score:g} and done=True"
        )
        raise Violation(
            f"none of the tasks {list(subject.indices)} is solved; task {worst.data_idx}: "
            f"{worst.problem or found}",
            worst.cause,
        )
    turns = sum(len(a.actions) for a in solved) / len(solved)
    text = f"{len(solved)} of {len(attempts)}, {turns:.1f} actions on average"
    missed = [a for a in attempts if not a.is_solved]
    if missed:
        text += f"; not {', '.join(str(a.data_idx) for a in missed)}"
        text += f" ({missed[0].problem})" if missed[0].problem else ""
    return text


def valid_actions_are_not_refused(subject: Subject) -> str:
    """Checks that valid actions are a list of different strings and are rarely rejected.

    A few rejections are tolerated, because some simulators only compute the list approximately.
    """
    for data_idx in subject.indices:
        play = subject.play()
        play.reset(data_idx)
        listed = play.ask("valid_actions")
        if (
            not isinstance(listed, list)
            or not listed
            or not all(isinstance(action, str) for action in listed)
        ):
            raise Violation(f"{play.moment}: valid_actions() is {shorten(repr(listed))}")
        if len(set(listed)) != len(listed):
            raise Violation(f"{play.moment}: valid_actions() lists an action twice: {listed}")
        play.close()
    refusal = subject.served.spec.refusal
    if not refusal:
        raise NotApplicable("spec.refusal is empty")
    tried = [(t.data_idx, turn) for t in subject.transcripts for turn in t.turns if turn.is_valid]
    refused = [
        f"task {data_idx}: {turn.action!r}: {shorten(turn.result.observation)!r}"
        for data_idx, turn in tried
        if re.match(refusal, turn.result.observation)
    ]
    if len(refused) > _REFUSED_SHARE * len(tried):
        raise Violation(f"{len(refused)} of {len(tried)} valid actions are refused; {refused[0]}")
    return f"{len(tried)} tried" + (f", {len(refused)} refused; {refused[0]}" if refused else "")


def no_task_begins_with_a_refusal(subject: Subject) -> None:
    """Checks that the spec's pattern for rejections matches no first observation of a task."""
    refusal = subject.served.spec.refusal
    if not refusal:
        raise NotApplicable("spec.refusal is empty")
    for transcript in subject.transcripts:
        if re.match(refusal, transcript.first.observation):
            raise Violation(
                f"task {transcript.data_idx} begins with {shorten(transcript.first.observation)!r},"
                f" which fits the refusal {refusal!r}"
            )


def the_state_is_json(subject: Subject) -> None:
    """Checks that `state()` is an object of JSON types, at the start of a task and later."""
    for transcript in subject.transcripts:
        play = subject.play()
        play.reset(transcript.data_idx)
        for action in (None, *transcript.actions[:2]):
            if action is not None and play.step(action).done:
                break
            state = play.ask("state")
            try:
                is_same = json.loads(json.dumps(state, allow_nan=False)) == state
            except (TypeError, ValueError) as error:
                raise Violation(f"{play.moment}: the state is no JSON: {error}") from error
            if not is_same or not isinstance(state, dict):
                raise Violation(
                    f"{play.moment}: the state {shorten(repr(state))} is no JSON object"
                )
        play.close()


def a_restored_episode_continues_as_the_saved_one(subject: Subject) -> str:
    """Checks that restored episodes continue like saved ones, here and in another process."""
    count = 0
    for transcript in subject.transcripts:
        for start in sorted({0, _half(transcript), max(0, len(transcript.turns) - 1)}):
            saved = _play_until(subject, transcript, start)
            restored = subject.play()
            restored.restore(saved.snapshot(), saved)
            for turn in transcript.turns[start:]:
                found = restored.step(turn.action)
                check_same(found, turn.result, f"{restored.moment}, restored", restored.place)
            for turn in transcript.turns[start:]:  # steps in the copy must not change this episode
                where = f"{saved.moment}, after its snapshot"
                check_same(saved.step(turn.action), turn.result, where, saved.place)
            restored.close()
            saved.close()
            count += 1
    for transcript, answers in zip(subject.transcripts, _elsewhere(subject)[1], strict=True):
        _check_elsewhere(transcript, answers, _half(transcript) + 1)
    return f"{count} snapshots"


def _check_elsewhere(transcript: Transcript, found: list | str, start: int) -> None:
    if isinstance(found, str):
        raise Violation(f"task {transcript.data_idx}, in another process: {found}")
    for turn, (here, there) in enumerate(zip(transcript.results[start:], found, strict=True)):
        where = f"task {transcript.data_idx} after {start + turn} actions, in another process"
        check_same(there, here, where, (transcript.data_idx, start + turn))


def closing_twice_is_harmless(subject: Subject) -> None:
    """Checks that closing twice causes no error, even before the first reset."""
    for data_idx in (None, subject.indices[0]):
        play = subject.play()
        if data_idx is not None:
            play.reset(data_idx)
        play.close()
        play.close()
