"""WebArena's score of an episode: the product of what its evaluators say, and our stricter ones."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias

from agentgym_envs.webarena.evaluation.functions import WITHOUT_A_SITE, Function
from agentgym_envs.webarena.evaluation.judge import Judge
from agentgym_envs.webarena.evaluation.page import Page
from agentgym_envs.webarena.evaluation.program_html import program_html
from agentgym_envs.webarena.evaluation.state_match import state_match
from agentgym_envs.webarena.evaluation.string_match import string_match
from agentgym_envs.webarena.evaluation.url_match import url_match
from agentgym_envs.webarena.evaluation.verdict import Part, Verdict
from agentgym_envs.webarena.sites.content import Changes
from agentgym_envs.webarena.tasks import STATE, STRING_MATCH, URL_MATCH, WebTask

ReadChanges: TypeAlias = Callable[[], Awaitable[Mapping[str, Changes]]]


async def evaluate(
    task: WebTask,
    answer: str | None,
    page: Page,
    judge: Judge | None = None,
    functions: Mapping[str, Function] = WITHOUT_A_SITE,
    *,
    changes: ReadChanges | None = None,
    patience_seconds: float = 0.0,
) -> Verdict:
    """The score of an episode that has ended.

    Args:
      task: with real addresses in place of placeholders.
      answer: the text of the agent's stop action; None if it never stopped, which counts as "".
      page: the page that the agent left. It is another one afterwards: `program_html` opens the
        addresses that it looks at. So score after everything else.
      judge: for freely worded answers.
      functions: name -> function, for `func:` in tasks.
      changes: reads what the episode changed in the sites' databases, for tasks with `state`.
      patience_seconds: how long a check of a page that was opened here is repeated until it
        holds. 0 for sites that answer with complete pages; WebArena waits 3 s for its own, which
        go on building a page after it has loaded.

    Raises:
      JudgeError: a judge was needed and gave no verdict, or there is none.
      PageError: the browser or a site failed.
      FunctionError: the task calls a function that is not in the table.
    """
    parts = []
    async for part in _parts(task, answer or "", page, judge, functions, changes, patience_seconds):
        parts.append(part)
        if not part.score:
            return Verdict(0.0, tuple(parts))
    return Verdict(1.0, tuple(parts))


async def _parts(
    task: WebTask,
    answer: str,
    page: Page,
    judge: Judge | None,
    functions: Mapping[str, Function],
    changes: ReadChanges | None,
    patience_seconds: float,
) -> AsyncIterator[Part]:
    """All checks in the order of the task's evaluators."""
    last_url = page.url  # program_html moves the page
    for kind in task.evaluation.eval_types:
        if kind == STRING_MATCH:
            async for part in string_match(task, answer, judge):
                yield part
        elif kind == URL_MATCH:
            for part in url_match(task, last_url):
                yield part
        elif kind == STATE:
            assert changes is not None, f"task {task.task_id} needs databases to look into"
            for part in state_match(task, await changes()):
                yield part
        else:
            targets = program_html(task, page, functions, patience_seconds=patience_seconds)
            async for part in targets:
                yield part
