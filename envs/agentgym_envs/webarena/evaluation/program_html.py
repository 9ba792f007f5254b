"""Evaluator `program_html`: checks that the sites are in the required state."""

import asyncio
import html
import time
from collections.abc import AsyncIterator, Mapping

from agentgym_envs.webarena.evaluation.functions import LAST_URL, Function, call
from agentgym_envs.webarena.evaluation.page import Page, PageError
from agentgym_envs.webarena.evaluation.text_match import equals, includes
from agentgym_envs.webarena.evaluation.verdict import Part
from agentgym_envs.webarena.tasks import (
    ALTERNATIVES,
    EXACT_MATCH,
    FUNCTION,
    LAST_PAGE,
    MUST_INCLUDE,
    PROGRAM_HTML,
    HtmlTarget,
    WebTask,
)

PAUSE_SECONDS = 0.2


async def program_html(
    task: WebTask, page: Page, functions: Mapping[str, Function], patience_seconds: float
) -> AsyncIterator[Part]:
    """Yields the checks of all targets, one by one.

    Targets on the agent's last page are checked first; other targets open other pages.

    Raises:
      PageError: An address of the task could not be opened, which is not the agent's fault.
      FunctionError: The task calls a function that does not exist.
    """
    last_url = page.url
    left_by_agent = [t for t in task.evaluation.targets if t.url == LAST_PAGE]
    elsewhere = [t for t in task.evaluation.targets if t.url != LAST_PAGE]
    for target in left_by_agent:
        for part in _checks(target, await _located(target, page, functions, last_url)):
            yield part
    for target in elsewhere:
        deadline = time.monotonic() + patience_seconds
        if not await _open(target, page, functions, last_url):
            yield Part(PROGRAM_HTML, target.url, 0.0, "the address made from the last one fails")
            return
        parts = _checks(target, await _located(target, page, functions, last_url))
        while not all(part.score for part in parts) and time.monotonic() < deadline:
            await asyncio.sleep(PAUSE_SECONDS)
            parts = _checks(target, await _located(target, page, functions, last_url))
        for part in parts:
            yield part


async def _open(
    target: HtmlTarget, page: Page, functions: Mapping[str, Function], last_url: str
) -> bool:
    """Opens a target's address; returns False if it depends on the last address and fails to open."""
    if not target.url.startswith(FUNCTION):
        await page.goto(target.url)
        return True
    url = await call(target.url, functions, page=page, last_url=last_url)
    try:
        await page.goto(url)
    except PageError:
        if LAST_URL not in target.url:
            raise
        return False
    return True


async def _located(
    target: HtmlTarget, page: Page, functions: Mapping[str, Function], last_url: str
) -> str:
    """Returns the text that a target's locator finds; "" if its script raises an error."""
    if not target.locator.strip():
        return html.unescape(await page.content())
    if target.locator.startswith(FUNCTION):
        found = await call(target.locator, functions, page=page, last_url=last_url)
        return html.unescape(found)
    try:
        for action in target.prep_actions:
            await page.evaluate(f"() => {action}")
    except PageError:
        pass  # the text can exist without these scripts
    try:
        return html.unescape(str(await page.evaluate(f"() => {target.locator}")))
    except PageError:
        return ""


def _checks(target: HtmlTarget, text: str) -> list[Part]:
    """Returns the checks of a target on the located text."""
    if target.exact_match is not None:
        return [_part(target, EXACT_MATCH, target.exact_match, equals(target.exact_match, text))]
    return [
        _part(
            target,
            MUST_INCLUDE,
            wanted,
            any(includes(alternative, text) for alternative in wanted.split(ALTERNATIVES)),
        )
        for wanted in target.must_include or ()
    ]


def _part(target: HtmlTarget, rule: str, wanted: str, holds: bool) -> Part:
    """Returns one check of this evaluator."""
    return Part(f"{PROGRAM_HTML} {rule}", wanted, float(holds), f"{target.url} {target.locator}")
