"""Record of an agent program's episode: its actions, the answers that they are of, its trajectory."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agentgym_jax.client.answers import Observation
from agentgym_jax.episodes.token_lists import token_fields
from agentgym_jax.episodes.trajectory import Outcome, Trajectory, Turn
from agentgym_jax.rollout.episode import EpisodeRequest
from agentgym_jax.serving.answer_parts import AnswerForm
from agentgym_jax.serving.digests import Message
from agentgym_jax.serving.sequences import Answer, TokenSequence


@dataclasses.dataclass
class Step:
    """Action of the program in its environment."""

    after: Answer | None  # last answer of the policy before the action
    action: str | None  # None after a parse error
    observation: str = ""
    answer: Observation | None = None


@dataclasses.dataclass(frozen=True)
class Ending:
    """Result of an episode; `is_own` is True if the program set the score, not the environment."""

    outcome: Outcome
    score: float = 0.0
    success: bool = False
    is_own: bool = False


def answer_with_text(
    text: str, answers: Collection[Answer], taken: Collection[Answer | None], form: AnswerForm
) -> Answer | None:
    """Returns the last answer with a text, if possible one that is not taken; None without one."""
    same = [answer for answer in answers if text.strip() in _contents(answer.text, form)]
    fresh = [a for a in same if not any(a is other for other in taken)]
    found = fresh or same
    return found[-1] if found else None


def _contents(text: str, form: AnswerForm) -> tuple[str, ...]:
    """Returns the forms in which clients see the text of an answer."""
    parts = [form.read(text, has_tools=has_tools) for has_tools in (False, True)]
    return text.strip(), *(part.text.strip() for part in parts)


def make_trajectory(
    request: EpisodeRequest,
    sequences: Mapping[TokenSequence, Sequence[Message]],
    steps: Sequence[Step],
    ending: Ending,
    *,
    first: Observation | None,
    last: Observation | None,
    error: str,
    attempts: int,
    seconds: float,
) -> Trajectory:
    """Returns the record of an episode, whose branches are the sequences of the program.

    Args:
      request: Request of the episode.
      sequences: Sequences with the messages of each.
      steps: Actions in the environment.
      ending: Result of the episode.
      first: First observation of the environment; None if the program did not use it.
      last: Last observation of the environment.
      error: Error message, or empty.
      attempts: Number of attempts.
      seconds: Time of the last attempt.
    """
    recorded = sorted(sequences.items(), key=lambda item: item[0].number)
    branches = [sequence for sequence, _ in recorded]
    has_env_score = last is not None and not ending.is_own
    tokens = token_fields(branches)
    starts = (0, *tokens["branch_starts"])
    turns = [
        _make_turn(answer, start, steps)
        for start, branch in zip(starts, branches, strict=False)  # without branches, one start
        for answer in branch.answers
    ]
    if not has_env_score:  # the last turn has the score that the program set
        turns = [dataclasses.replace(turn, reward=0.0) for turn in turns]
        turns[-1:] = [dataclasses.replace(turn, reward=ending.score) for turn in turns[-1:]]
    return Trajectory(
        item_id=request.task.item_id,
        sample=request.sample,
        step=request.step,
        outcome=ending.outcome,
        score=ending.score,
        success=ending.success,
        **tokens,
        turns=tuple(turns),
        messages=tuple(
            message for branch, known in recorded for message in _shown(known, len(branch.answers))
        ),
        error=error,
        attempts=attempts,
        seconds=seconds,
        score_scale=last.score_scale if last and has_env_score else 1.0,
        first_observation=None if first is None else first.text,
    )


def _make_turn(answer: Answer, start: int, steps: Sequence[Step]) -> Turn:
    """Returns the turn of an answer whose sequence begins at `start`, with its action."""
    turn = Turn(
        action_start=start + answer.start,
        action_stop=start + answer.stop,
        text=answer.text,
        action=answer.text,
        observation="",
        reward=0.0,
        is_cut=answer.is_cut,
        grammar=answer.grammar,
    )
    for step in steps:
        if step.after is not answer:
            continue
        turn = dataclasses.replace(turn, action=step.action, observation=step.observation)
        if step.answer is not None:
            turn = dataclasses.replace(
                turn,
                reward=turn.reward + step.answer.reward,
                is_rejected=step.answer.is_rejection,
                shows_state=step.answer.shows_state,
            )
    return turn


def _shown(messages: Sequence[Message], num_answers: int) -> list[dict[str, Any]]:
    """Returns the messages of a branch for the record.

    Answers that this branch did not sample, but got in a rewritten history, have no loss.
    """
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    given = set(answers[: len(answers) - num_answers])
    return [
        {"role": message["role"], "content": message.get("content") or ""}
        | ({"loss": False} if i in given else {})
        for i, message in enumerate(messages)
    ]
