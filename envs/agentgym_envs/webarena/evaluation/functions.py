"""Functions that WebArena's tasks call by name.

A task says `func:name('argument', ..)`. WebArena evaluates this call as Python code; here a table
maps names to functions. An argument is a string, `__page__` (the page) or contains `__last_url__`
(the address at which the agent stopped).
"""

import ast
import json
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentgym_envs.webarena.evaluation.page import Page, PageError
from agentgym_envs.webarena.tasks import FUNCTION

LAST_URL = "__last_url__"
PAGE = "__page__"
Function = Callable[..., Awaitable[str]]


class FunctionError(ValueError):
    """Error in a task: a called function is not in the table, or the call has another form."""


async def call(
    expression: str, functions: Mapping[str, Function], *, page: Page, last_url: str
) -> str:
    """Calls the function of `func:name(..)` and returns its result.

    Raises:
      FunctionError: The table does not have the name, or the expression is not a plain call.
      PageError: The function could not use the page.
    """
    name, arguments = parse(expression)
    if name not in functions:
        known = ", ".join(sorted(functions)) or "none"
        raise FunctionError(f"no function {name!r} is configured; there are {known}")
    given = [page if a == PAGE else a.replace(LAST_URL, last_url) for a in arguments]
    return await functions[name](*given)


def parse(expression: str) -> tuple[str, tuple[str, ...]]:
    """Parses the name and the arguments of `func:name('a', __page__)`.

    Raises:
      FunctionError: The expression is not a call of a named function with string arguments.
    """
    source = expression.removeprefix(FUNCTION).strip()
    try:
        tree = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise FunctionError(f"{expression!r} is not a call: {error.msg}") from error
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.keywords:
        raise FunctionError(f"{expression!r} is not a plain call of a function")
    return tree.func.id, tuple(_argument(node, expression) for node in tree.args)


def _argument(node: ast.expr, expression: str) -> str:
    """Returns a string argument, or one of the words `__page__` and `__last_url__`."""
    value: Any = node.id if isinstance(node, ast.Name) else getattr(node, "value", None)
    words = (PAGE, LAST_URL)
    if not isinstance(value, str) or (isinstance(node, ast.Name) and value not in words):
        raise FunctionError(f"arguments of {expression!r} should be strings, {PAGE} or {LAST_URL}")
    return value


async def reddit_get_post_url(url: str) -> str:
    """Returns the address of the post on a page of Postmill, without comment and title."""
    parts = urllib.parse.urlparse(url)
    path = parts.path.split("/")
    if len(path) < 4 or path[1] != "f":
        return url  # the page is not a post; its address is used unchanged
    return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/"


async def gitlab_get_project_memeber_role(page: Page, account_name: str) -> str:
    """Returns the role of an account on GitLab's page of members; "" if the account is missing."""
    script = """() => {
      const names = "td[data-label='Account'] span.gl-avatar-labeled-sublabel";
      const accounts = [...document.querySelectorAll(names)].map(e => e.outerText);
      const roles = document.querySelectorAll("td.col-max-role span");
      return roles[accounts.indexOf(ACCOUNT)].outerText;
    }"""
    try:
        role = await page.evaluate(script.replace("ACCOUNT", json.dumps(f"@{account_name}")))
    except PageError:
        return ""
    return str(role)


# Functions by WebArena's names. Functions for WebArena's shop are in magento.py, because they need
# the shop's address and an account.
WITHOUT_A_SITE: Mapping[str, Function] = {
    "reddit_get_post_url": reddit_get_post_url,
    "gitlab_get_project_memeber_role": gitlab_get_project_memeber_role,
}
