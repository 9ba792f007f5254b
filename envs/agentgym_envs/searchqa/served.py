"""Deep search as a served environment: its options, spec, routes and answer bodies."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import pydantic

from agentgym_envs.base.environment import Environment, SetupError, StepResult
from agentgym_envs.base.protocol import EnvironmentSpec
from agentgym_envs.base.served import (
    Answers,
    EnvIdxBody,
    EnvIdxStepBody,
    ServedEnvironment,
    never_reset,
    told_observation,
)
from agentgym_envs.data_folder import data_folder
from agentgym_envs.searchqa import embedded, programs, texts
from agentgym_envs.searchqa.engines.engine import ENGINES, MAX_TOPK
from agentgym_envs.searchqa.environment import Judged, Search, SearchQaEnvironment
from agentgym_envs.searchqa.library import Index, Library, index_of
from agentgym_envs.searchqa.questions import import_questions
from agentgym_envs.searchqa.remote import RetrieverClient, token_of_environment
from agentgym_envs.searchqa.rewards import Shaping

# Version of the behaviour: changes when a text or a rule changes.
BEHAVIOUR = "1"
MAX_TURNS = 30

INSTRUCTIONS = """\
Answer a question with the help of a search engine. Many questions need several searches, one after \
the other: find out the first thing, then search with what you learned.

Write in these tags:
<think> ... </think> - what you know, what is missing, what you do next. Think before every action.
<search> ... </search> - a query of a few words. The next message brings the passages that were \
found, between <information> and </information>.
<answer> ... </answer> - your final answer, as short as possible: a name, a date, a number. It ends \
the task; there is no second try.

Every reply holds one search or one answer, and ends with it. Never write the information yourself. \
If the passages do not help, search again with other words."""


# PYTHON is inserted before this description.
_BEFORE_ANSWER = "<answer> ... </answer>"
PYTHON = f"""\
<python> ... </python> - a Python program, for dates, sums and counts. The next message brings what it \
prints, between <output> and </output>. It has no files, no network and {programs.CPU_SECONDS} seconds. It can \
import modules such as datetime, math, re and statistics.
"""


class CreateBody(pydantic.BaseModel):
    """Body of `POST /create`. Its `id` is ignored, because `POST /reset` chooses the question."""

    id: int = 0


class ResetBody(EnvIdxBody):
    """Body of `POST /reset`."""

    id: int | None = None


def make_served_environment(
    *,
    engine: str = "bm25s",
    topk: int = 3,
    corpus: str = "",
    questions: str = "",
    retriever: str = "",
    retriever_seconds: float = 20.0,
    encoder: str = "",
    format_score: float = 0.0,
    search_cost: float = 0.0,
    free_searches: int = 2,
    python: bool = False,
) -> ServedEnvironment:
    """Returns deep search as a served environment.

    The index and the questions that the options select are built here, once.

    Args:
      engine: Search engine: `bm25s`, `tantivy` or `dense`.
      topk: Number of passages that a search shows.
      corpus: Path of your own `corpus.jsonl(.gz)`; if empty, the corpus of facts, which is built
        here.
      questions: Path of your own file or folder of questions; if empty, the questions of that
        corpus.
      retriever: Address of a server with Search-R1's protocol, used instead of an engine. Its
        token, if it requires one, is in the environment variable AGENTGYM_RETRIEVER_TOKEN.
      retriever_seconds: Time limit for the retriever's answer.
      encoder: Folder of a sentence encoder, for the engine `dense`.
      format_score: Same as in `Shaping`.
      search_cost: Same as in `Shaping`.
      free_searches: Same as in `Shaping`.
      python: True if an agent can run Python programs, also under `--compat`.

    Raises:
      SetupError: An option is wrong, a package is not installed, or this machine cannot confine
        programs.
    """
    _check(engine, topk, corpus, questions, retriever)
    shaping = Shaping(format_score, search_cost, free_searches)
    instructions = INSTRUCTIONS
    if python:
        programs.check()
        instructions = INSTRUCTIONS.replace(_BEFORE_ANSWER, PYTHON + _BEFORE_ANSWER).replace(
            "one search or one answer", "one search, one program or one answer"
        )
    data = data_folder() / "searchqa"
    index: Index | None = None
    token = token_of_environment() if retriever else None
    if questions:
        asked = import_questions(pathlib.Path(questions).expanduser(), data)
        passages, content = pathlib.Path(corpus).expanduser(), "own"
    else:
        folder = embedded.prepared()
        asked = import_questions(folder / "questions.jsonl", data, dataset=embedded.DATASET)
        passages, content = folder / "passages.jsonl", f"facts-{folder.name}"
    if not retriever:
        index = index_of(passages, data, engine=engine, encoder=encoder)
        index.build()

    @functools.cache
    def search() -> Search:
        if index is None:
            client = RetrieverClient(retriever, retriever_seconds, token)
            return lambda query: client.search(query, topk)
        library: Library = index.open()
        return lambda query: library.search(query, topk)

    def factory(is_compat: bool) -> Callable[[], Environment]:
        return lambda: SearchQaEnvironment(
            asked,
            search(),
            shaping=Shaping() if is_compat else shaping,
            is_compat=is_compat,
            run=programs.run if python else None,
        )

    source = "retriever" if retriever else engine
    return ServedEnvironment(
        spec=EnvironmentSpec(
            name="searchqa",
            version=f"{BEHAVIOUR}-{content}-{source}-top{topk}{shaping}{'-python' * python}",
            instructions=instructions,
            action_format="raw",
            num_tasks=len(asked),
            manifest_sha256=asked.metadata["manifest_sha256"],
            max_turns=MAX_TURNS,
            refusal=texts.INVALID.partition(".")[0],
            success_score=shaping.least_right,
        ),
        banner="ok",
        factory=factory(is_compat=False),
        compat_factory=factory(is_compat=True),
        tasks=lambda: asked.tasks,
        answers=Answers(
            create=lambda session_id, first: session_id,
            reset=lambda session_id, result: result.observation,
            step=_step_answer,
            observation=told_observation,
            detail=_detail_answer,
        ),
        create_body=CreateBody,
        reset_body=ResetBody,
        compat_refused_when_done=frozenset(),
        task_field="id",
        session_body=EnvIdxBody,
        step_body=EnvIdxStepBody,
        compat_error_status=500,
        prepare=search,
    )


def _check(engine: str, topk: int, corpus: str, questions: str, retriever: str) -> None:
    if engine not in ENGINES:
        raise SetupError(f"searchqa: engine={engine!r} is none of {', '.join(ENGINES)}")
    if not 1 <= topk <= MAX_TOPK:
        raise SetupError(f"searchqa: topk={topk} is not in 1 .. {MAX_TOPK}")
    if corpus and retriever:
        raise SetupError("searchqa: give a corpus or a retriever, not both")
    if corpus and not questions:
        raise SetupError("searchqa: corpus needs questions that it can answer")
    if questions and not (corpus or retriever):
        raise SetupError("searchqa: questions need a corpus or a retriever that can answer them")


def _step_answer(result: StepResult) -> dict[str, Any]:
    assert isinstance(result, Judged)  # SearchQaEnvironment.step returns no other type
    return {
        "observation": result.observation,
        "reward": result.reward,
        "done": result.done,
        "info": result.facts,
    }


def _detail_answer(environment: SearchQaEnvironment, last: StepResult | None) -> dict[str, Any]:
    if last is None:
        raise never_reset()
    return environment.detail()
