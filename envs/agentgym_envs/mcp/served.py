"""Serves an MCP server with tasks from a file as an environment."""

import functools
import hashlib
import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from agentgym_envs.base.environment import SetupError
from agentgym_envs.base.protocol import check_tools
from agentgym_envs.base.served import ServedEnvironment, standard_environment
from agentgym_envs.mcp import demo
from agentgym_envs.mcp.connection import CallError, McpServer
from agentgym_envs.mcp.environment import ANSWER, REFUSAL, McpEnvironment, Settings
from agentgym_envs.mcp.tasks import Task, make_task, read_tasks, rows

# Version of the behaviour: changes when a text or the rule for answers changes.
BEHAVIOUR = "2"

INSTRUCTIONS = """\
Solve the task with the tools. Call exactly one tool in each answer, then read its result. When you \
know the answer, or have done what the task asks for, call the tool {answer_tool}. That ends the task."""


def make_served_environment(
    *,
    command: str = "",
    tasks: str = "",
    name: str = "mcp",
    answer_tool: str = "finish",
    hidden: str = "",
    instructions: str = "",
    max_turns: int = 20,
    call_seconds: float = 20.0,
    max_characters: int = 10_000,
    restart: bool = True,
) -> ServedEnvironment:
    """Returns the tools of an MCP server, with tasks from a file, as a served environment.

    Args:
      command: Command that starts the server, which speaks MCP over stdio. Without command and
        tasks, a small shop is served.
      tasks: File of tasks (tasks.py).
      name: Name of the environment in item ids and configs.
      answer_tool: Name of the additional tool with which an agent gives its answer.
      hidden: Names of tools that only checkers may call, separated by commas.
      instructions: Text for the agent about the server, before the general rules.
      max_turns: Turn limit of an evaluation episode.
      call_seconds: Limit for the server's start and for each call, in seconds.
      max_characters: Maximum length of a result that the agent reads.
      restart: False to keep a server for later episodes, if its tools change nothing.

    Raises:
      SetupError: The server cannot be used, or a task is wrong.
    """
    if bool(command) != bool(tasks):
        raise SetupError(
            f"command={command!r} and tasks={tasks!r}: give both, a command that starts an MCP "
            "server and a file of tasks"
        )
    if min(max_turns, max_characters) < 1 or not 0 < call_seconds <= 3600:
        raise SetupError(
            f"max_turns={max_turns}, max_characters={max_characters} and call_seconds="
            f"{call_seconds:g}: expected at least 1, and at most 3600 seconds"
        )
    found = read_tasks(tasks) if tasks else _demo_tasks()
    try:
        words = shlex.split(command) if command else [sys.executable, demo.__file__]
    except ValueError as error:
        raise SetupError(f"command={command!r}: {error}") from error
    offered = _list_tools(words, call_seconds, command)
    _check_names(found, offered, answer_tool, hidden)
    shown = [tool for tool in offered if tool["name"] not in _names(hidden)]
    shown.append(_answer_tool(answer_tool))
    settings = Settings(words, shown, call_seconds, max_characters, restart)
    rules = INSTRUCTIONS.format(answer_tool=answer_tool)
    digest = hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:12]
    try:
        return standard_environment(
            functools.partial(McpEnvironment, settings, found),
            rows(found),
            name=name,
            version=f"{BEHAVIOUR}-{digest}",
            instructions=f"{instructions}\n\n{rules}" if instructions else rules,
            max_turns=max_turns,
            action_format="tools",
            refusal=REFUSAL,
            tools=shown,
        )
    except ValueError as error:
        raise SetupError(f"command={command!r}: {error}") from error


def _demo_tasks() -> list[Task]:
    return [make_task(row, f"{demo.__file__}: task {i}") for i, row in enumerate(demo.rows())]


def _list_tools(words: Sequence[str], seconds: float, command: str) -> list[dict[str, Any]]:
    """Returns the tools of the server, which is started for this purpose."""
    try:
        server = McpServer(words, seconds)
        try:
            offered = server.tools()
        finally:
            server.close()
        check_tools(offered)
    except (OSError, CallError, ValueError) as error:
        raise SetupError(
            f"command={command!r}: {error}. Give a command that starts an MCP server over stdio"
        ) from error
    return offered


def _check_names(
    tasks: Sequence[Task], offered: Sequence[dict[str, Any]], answer_tool: str, hidden: str
) -> None:
    """Checks the names of tools in the options and in the tasks."""
    known = {tool["name"] for tool in offered}
    if answer_tool in known:
        raise SetupError(
            f"answer_tool={answer_tool!r} is also a tool of the server; choose another name"
        )
    if unknown := sorted(_names(hidden) - known):
        raise SetupError(f"hidden={hidden!r}: the server has no {unknown[0]!r}; it has {known}")
    for task in tasks:
        if missing := sorted(task.tools - known):
            raise SetupError(f"{task.place}: the server has no tool {missing[0]!r}; it has {known}")


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",") if name.strip()}


def _answer_tool(name: str) -> dict[str, Any]:
    text = "The answer, as short as possible; empty if the task asks for none."
    return {
        "name": name,
        "description": "Ends the task and gives its answer.",
        "parameters": {
            "type": "object",
            "properties": {ANSWER: {"type": "string", "description": text}},
            "required": [ANSWER],
        },
    }
