"""Score of an episode: 1 if all checks of the task's evaluators hold, else 0."""

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
from agentgym_envs.webarena.tasks import STATE, STRING_MATCH, URL_MATCH, WebTask
from agentgym_sites.content import Changes

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
    """Computes the score of an episode that has ended.

    Args:
      task: Task with real addresses in place of placeholders.
      answer: Text of the agent's stop action; None if it never stopped, which counts as "".
      page: Last page of the agent. `program_html` opens other addresses in this page, so read
        everything else from the page before scoring.
      judge: Judge of freely worded answers.
      functions: Function by name, for `func:` in tasks.
      changes: Function that reads the episode's changes in the sites' databases, for tasks with
        `state`.
      patience_seconds: Time during which failed checks of a newly opened page are repeated; 0 for
        sites that answer with complete pages. WebArena waits 3 s for its sites, which continue to
        build a page after it has loaded.

    Raises:
      JudgeError: The judge gave no verdict, or a judge is required and there is none.
      PageError: The browser or a site failed.
      FunctionError: The task calls a function that `functions` lacks.
    """
    last_url = page.url  # read now, because program_html opens other addresses

    async def checks() -> AsyncIterator[Part]:
        """Yields all checks in the order of the task's evaluators."""
        for kind in task.evaluation.eval_types:
            if kind == STRING_MATCH:
                async for part in string_match(task, answer or "", judge):
                    yield part
            elif kind == URL_MATCH:
                for part in url_match(task, last_url):
                    yield part
            elif kind == STATE:
                assert changes is not None, f"task {task.task_id} needs `changes`"
                for part in state_match(task, await changes()):
                    yield part
            else:
                async for part in program_html(task, page, functions, patience_seconds):
                    yield part

    parts = []
    async for part in checks():
        parts.append(part)
        if not part.score:
            return Verdict(0.0, tuple(parts))
    return Verdict(1.0, tuple(parts))
