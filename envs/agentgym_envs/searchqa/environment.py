"""One question behind the text protocol: searches until an answer."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_envs.base.environment import Environment, EnvironmentFault, StepResult
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.searchqa import scoring, texts
from agentgym_envs.searchqa.corpus.expert import Expert
from agentgym_envs.searchqa.questions import Question, Questions
from agentgym_envs.searchqa.rewards import Shaping
from agentgym_envs.searchqa.texts import Passage

Search = Callable[[str], Sequence[Passage]]


@dataclasses.dataclass(frozen=True)
class Judged(StepResult):
    """Answer to an action.

    Attributes:
      facts: about the episode after its last answer, for `info`; None before and under compat.
    """

    facts: dict[str, Any] | None = None


@dataclasses.dataclass
class Episode:
    """One question being answered.

    Attributes:
      data_idx: of the question.
      question: what is asked.
      actions: all actions as they came.
      last: the last answer of the environment.
      searches: queries and what they found.
      answers: given so far.
      is_well_formed: all turns were.
    """

    data_idx: int
    question: Question
    last: StepResult
    actions: list[str] = dataclasses.field(default_factory=list)
    searches: list[tuple[str, Sequence[Passage]]] = dataclasses.field(default_factory=list)
    answers: list[str] = dataclasses.field(default_factory=list)
    is_well_formed: bool = True

    def facts(self) -> dict[str, Any]:
        """How good the last answer is."""
        answer = self.answers[-1] if self.answers else ""
        golden = self.question.golden_answers
        return {
            "exact_match": float(bool(self.answers) and scoring.exact_match(answer, golden)),
            "f1": scoring.f1(answer, golden) if self.answers else 0.0,
            "num_searches": len(self.searches),
            "is_well_formed": self.is_well_formed,
        }


class SearchQaEnvironment(Environment):
    """Questions over a corpus.

    Args:
      questions: the tasks.
      search: finds passages, the best first.
      shaping: what counts beside a right answer; by AgentGym's rules nothing does.
      is_compat: AgentGym's rules: a wrong answer may be followed by another.
    """

    def __init__(
        self,
        questions: Questions,
        search: Search,
        *,
        shaping: Shaping,
        is_compat: bool,
    ):
        self._questions = questions
        self._search = search
        self._shaping = shaping
        self._is_compat = is_compat
        self._episode: Episode | None = None

    def reset(self, data_idx: int) -> StepResult:
        """Asks a question.

        Raises:
          EnvironmentFault: UNKNOWN_TASK; the episode before goes on.
        """
        if not 0 <= data_idx < len(self._questions):
            raise EnvironmentFault(
                ErrorKind.UNKNOWN_TASK,
                f"searchqa has the questions 0 .. {len(self._questions) - 1}, asked was {data_idx}",
            )
        question = self._questions[data_idx]
        prompt = texts.COMPAT_PROMPT if self._is_compat else texts.PROMPT
        first = Judged(prompt + question.question, reward=0.0, score=0.0, done=False)
        self._episode = Episode(data_idx, question, first)
        return first

    def step(self, action: str) -> StepResult:
        """Searches or judges an answer; by our rules the first answer is the end.

        Raises:
          EnvironmentFault: NOT_RESET, by our rules FINISHED, SIMULATOR if the retriever fails.
        """
        episode = self._started()
        if not self._is_compat:
            self._check_not_done(episode)
        found = texts.read_action(action)
        if found is not None and found.is_search:
            passages = self._search(found.text)  # may fail, before anything has changed
            episode.searches.append((found.text, passages))
            result = self._going_on(episode, texts.information(passages))
        elif found is None:
            result = self._going_on(episode, texts.INVALID)
        else:
            result = None
        episode.is_well_formed = episode.is_well_formed and texts.is_well_formed(action)
        episode.actions.append(action)
        if result is None:
            assert found is not None  # else it was going on
            judge = self._judge_compat if self._is_compat else self._judge
            result = judge(episode, found)
        episode.last = result
        return result

    def expert_action(self) -> str:
        """What the scripted player does, which sees the question and the passages found so far.

        It is a thought, then a search or an answer, as the instructions want it. Of questions that
        are not worded like those of the corpus of facts it knows no more than to search for them.
        """
        episode = self._playing()
        player = Expert(episode.question.question)
        action = player.next_action("")
        for _, passages in episode.searches:
            action = player.next_action(texts.information(passages))
        return texts.with_thought(action)

    def valid_actions(self) -> list[str]:
        """Searches for the question and for titles that were found, and these titles as answers."""
        episode = self._playing()
        titles = [p.title.strip('" ') for _, passages in episode.searches for p in passages]
        titles = [title for title in dict.fromkeys(titles) if title and "<" not in title]
        queries = dict.fromkeys([episode.question.question, *titles])
        return [texts.search_text(q) for q in queries] + [texts.answer_text(t) for t in titles]

    def detail(self) -> dict[str, Any]:
        """What is known about the episode, the golden answers when it is over."""
        episode = self._started()
        known = {
            "observation": episode.last.observation,
            "reward": episode.last.reward,
            "score": episode.last.score,
            "done": episode.last.done,
            "rules": "repeated answers" if self._is_compat else "one answer",
            **episode.facts(),
        }
        if episode.last.done:
            known["golden_answers"] = list(episode.question.golden_answers)
        return known

    def state(self) -> dict[str, Any]:
        """Question, searches with the titles found, answers, and how good the last one is."""
        if self._episode is None:
            return {}
        episode = self._episode
        return {
            "data_idx": episode.data_idx,
            "question": episode.question.question,
            "searches": [
                {"query": query, "titles": [passage.title for passage in passages]}
                for query, passages in episode.searches
            ],
            "answers": list(episode.answers),
            **self.detail(),
        }

    def snapshot(self) -> dict[str, Any]:
        """Question and actions; the rest follows from them.

        Raises:
          EnvironmentFault: NOT_RESET.
        """
        episode = self._started()
        return {"data_idx": episode.data_idx, "actions": list(episode.actions)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Goes on from a snapshot; its searches are made again."""
        self.reset(snapshot["data_idx"])
        for action in snapshot["actions"]:
            self.step(action)

    def last_observation(self) -> str:
        """What `GET /observation` tells: AgentGym's server repeats the question."""
        episode = self._started()
        if self._is_compat:
            return texts.COMPAT_PROMPT + episode.question.question
        return episode.last.observation

    def _going_on(self, episode: Episode, text: str) -> StepResult:
        score = 0.0 if self._is_compat else episode.last.score
        return Judged(text, reward=0.0, score=score, done=False)

    def _judge(self, episode: Episode, action: texts.Action) -> StepResult:
        episode.answers.append(action.text)
        facts = episode.facts()
        is_right = facts["exact_match"] == 1.0
        score = self._shaping.score(
            is_right=is_right,
            is_well_formed=episode.is_well_formed,
            searches=len(episode.searches),
        )
        text = texts.RIGHT if is_right else texts.WRONG
        return Judged(text, reward=score, score=score, done=True, facts=facts)

    def _judge_compat(self, episode: Episode, action: texts.Action) -> StepResult:
        episode.answers.append(action.last_answer)
        is_right = scoring.exact_match(action.last_answer, episode.question.golden_answers)
        text = texts.RIGHT if is_right else texts.WRONG_TRY_AGAIN
        reward = float(is_right)
        return Judged(text, reward=reward, score=reward, done=is_right)

    def _started(self) -> Episode:
        if self._episode is None:
            raise EnvironmentFault(
                ErrorKind.NOT_RESET, "searchqa: call reset with the index of a question first"
            )
        return self._episode

    def _check_not_done(self, episode: Episode) -> None:
        if episode.last.done:
            raise EnvironmentFault(
                ErrorKind.FINISHED, "searchqa: this episode is over; reset to start another one"
            )

    def _playing(self) -> Episode:
        episode = self._started()
        self._check_not_done(episode)
        return episode
