"""Questions as an environment with text actions: the agent searches, then answers."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from agentgym_envs.base.environment import StepResult, check_task
from agentgym_envs.base.episodic import ReplayedEnvironment
from agentgym_envs.searchqa import scoring, texts
from agentgym_envs.searchqa.questions import Question, Questions
from agentgym_envs.searchqa.rewards import Shaping
from agentgym_envs.searchqa.texts import Passage
from agentgym_facts.expert import Expert

Search = Callable[[str], Sequence[Passage]]
Run = Callable[[str], str]


@dataclasses.dataclass(frozen=True)
class Judged(StepResult):
    """Result of an action.

    Attributes:
      facts: Facts for `info` after the final answer; None before it and always under `--compat`.
    """

    facts: dict[str, Any] | None = None


@dataclasses.dataclass
class Episode:
    """State of one episode.

    Attributes:
      actions: All actions in the form in which they were received.
      is_well_formed: True if every turn was a thought, then one action.
    """

    data_idx: int
    question: Question
    last: StepResult
    actions: list[str] = dataclasses.field(default_factory=list)
    searches: list[tuple[str, Sequence[Passage]]] = dataclasses.field(default_factory=list)
    answers: list[str] = dataclasses.field(default_factory=list)
    programs: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    is_well_formed: bool = True

    @property
    def done(self) -> bool:
        """Returns True if the last action ended the episode."""
        return self.last.done

    def facts(self) -> dict[str, Any]:
        """Returns the scores of the last answer, the number of searches and `is_well_formed`."""
        answer = self.answers[-1] if self.answers else ""
        golden = self.question.golden_answers
        return {
            "exact_match": float(bool(self.answers) and scoring.is_right(answer, golden)),
            "f1": scoring.f1(answer, golden) if self.answers else 0.0,
            "num_searches": len(self.searches),
            "is_well_formed": self.is_well_formed,
        }


class SearchQaEnvironment(ReplayedEnvironment[Episode]):
    """Questions over a corpus.

    Args:
      search: Function that finds passages, the best first.
      shaping: Additional reward terms; unused under AgentGym's rules.
      is_compat: True for AgentGym's rules, under which another answer can follow a wrong one.
      run: Function that executes a Python program and returns what it printed; None without this
        tool.
    """

    name = "searchqa"

    def __init__(
        self,
        questions: Questions,
        search: Search,
        *,
        shaping: Shaping,
        is_compat: bool,
        run: Run | None = None,
    ):
        self._questions = questions
        self._search = search
        self._shaping = shaping
        self._is_compat = is_compat
        self._run = run

    def reset(self, data_idx: int) -> StepResult:
        """Starts an episode with a question."""
        check_task(self.name, data_idx, len(self._questions))
        question = self._questions[data_idx]
        first = Judged(self._first(question), reward=0.0, score=0.0, done=False)
        self._episode = Episode(data_idx, question, first)
        return first

    def step(self, action: str) -> StepResult:
        """Runs a search or a program, or judges an answer.

        Under our rules the first answer ends the episode.

        Raises:
          EnvironmentFault: NOT_RESET; SIMULATOR if the retriever fails or a program cannot be
            started; FINISHED under our rules.
        """
        episode = self.episode if self._is_compat else self.playing
        has_programs = self._run is not None
        found = texts.read_action(action, has_programs=has_programs)
        if found is not None and found.kind == "search":
            # the search can fail, so it runs before the episode changes
            passages = self._search(found.text)
            episode.searches.append((found.text, passages))
            result = self._unscored(episode, texts.information(passages))
        elif found is not None and found.kind == "python":
            assert self._run is not None  # without it there are no programs
            printed = self._run(found.text)
            episode.programs.append((found.text, printed))
            result = self._unscored(episode, texts.output_text(printed))
        elif found is None:
            result = self._unscored(episode, texts.INVALID)
        else:
            result = None
        is_well_formed = texts.is_well_formed(action, has_programs=has_programs)
        episode.is_well_formed = episode.is_well_formed and is_well_formed
        episode.actions.append(action)
        if result is None:
            assert found is not None  # without `found`, `result` was set above
            judge = self._judge_compat if self._is_compat else self._judge
            result = judge(episode, found)
        episode.last = result
        return result

    def expert_action(self) -> str:
        """Returns the action of the scripted agent, which sees the question and the passages found
        so far.

        The action is a thought, then a search or an answer, as the instructions require. If the
        agent does not know the wording of a question, it can only search for the question itself.
        """
        episode = self.playing
        agent = Expert(episode.question.question)
        action = agent.next_action("")
        for _, passages in episode.searches:
            action = agent.next_action(texts.information(passages))
        return texts.with_thought(action)

    def valid_actions(self) -> list[str]:
        """Returns searches for the question and for found titles, and answers with these titles."""
        episode = self.playing
        titles = [p.title.strip('" ') for _, passages in episode.searches for p in passages]
        titles = [title for title in dict.fromkeys(titles) if title and "<" not in title]
        queries = dict.fromkeys([episode.question.question, *titles])
        programs = [] if self._run is None else ["<python> print(6 * 7) </python>"]
        searches = [texts.search_text(query) for query in queries]
        return searches + [texts.answer_text(title) for title in titles] + programs

    def detail(self) -> dict[str, Any]:
        """Returns facts about the episode, with the golden answers after its end."""
        episode = self.episode
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
        """Returns the question, all searches, programs and answers, and the last score."""
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
            "programs": [
                {"program": text, "output": printed} for text, printed in episode.programs
            ],
            "answers": list(episode.answers),
            **self.detail(),
        }

    def last_observation(self) -> str:
        """Returns the answer to `GET /observation`; under `--compat`, the first observation."""
        episode = self.episode
        if self._is_compat:
            return self._first(episode.question)
        return episode.last.observation

    def _first(self, question: Question) -> str:
        return texts.first_observation(
            question.question, is_compat=self._is_compat, has_programs=self._run is not None
        )

    def _unscored(self, episode: Episode, text: str) -> StepResult:
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
