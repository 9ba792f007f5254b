"""Parsing of a model's text into the action that is sent to an environment.

A parse error is the policy's mistake, never a failure of the environment: the agent gets a short
message, and no request is sent. A model's text is never executed.
"""

import dataclasses
import enum
import json
import re
from collections.abc import Mapping

from agentgym_envs.base.protocol import clean_text, write_call
from agentgym_jax.client import calls
from agentgym_jax.client.calls import Function, ParseError
from agentgym_jax.text.thinking import split_thinking
from agentgym_jax.text.tool_calls import parse_tool_calls
from agentgym_jax.text.tool_chat import ToolForm


class ActionFormat(enum.StrEnum):
    """Syntax of an action: the value of `action_format` in a server's spec and in a config."""

    REACT = "react"  # the action is the line after `Action:`
    REACT_OR_BARE = "react_or_bare"  # as in `react`, or the action is the only line of the text
    RAW = "raw"  # the action is the whole text
    # a JSON object with `thought`, `function_name` and `arguments`
    FUNCTION_CALLING = "function_calling"
    CODE_AS_ACTION = "code_as_action"  # one Python call, with the thought in comments
    TOOLS = "tools"  # a call of a tool, in the form of the model's chat template


@dataclasses.dataclass(frozen=True)
class ActionRules:
    """Rules for parsing a reply in one environment.

    Attributes:
      format: Position and syntax of the action in the text.
      max_characters: Maximum length of an action; a longer action is a parse error.
      dropped: Regular expression of the characters that are removed from an action.
      bare: Regular expression; a text without `Action:` is an action if it contains a match.
      block: Regular expression that a raw text must contain. If the expression has a group, the
        action is the group of the last match, otherwise the whole text.
      block_problem: Message to the agent if no match of `block` is found.
      functions: Functions by name, for the formats in which an action is a call.
      ignores_thinking: True if thinking is no part of a raw action. AgentGym's servers expect it.
      tool_form: Form of the calls in the format `tools`.
    """

    format: ActionFormat
    max_characters: int
    dropped: str = ""
    bare: str = ""
    block: str = ""
    block_problem: str = ""
    functions: Mapping[str, Function] = dataclasses.field(default_factory=dict)
    ignores_thinking: bool = False
    tool_form: ToolForm = ToolForm()


@dataclasses.dataclass(frozen=True)
class ParsedAction:
    """Action in a reply of the model, or the message to the agent about a parse error."""

    action: str | None
    problem: str | None = None


NO_ACTION = (
    "No action was found in this answer. "
    "Finish with one line `Action: ...` that holds the action to take."
)
SEVERAL_ACTIONS = "This answer holds {count} actions, so none was taken. Give exactly one `Action:` in each answer."
EMPTY_ACTION = "The action is empty. Write the action to take after `Action:`."
EMPTY_ANSWER = "This answer holds no action. Write the action to take."
NO_CALL = "No tool call was found in this answer. Call one of the tools; {form}."
SEVERAL_CALLS = (
    "This answer holds {count} tool calls, so none was made. Make exactly one call in each answer."
)
LONG_ACTION = (
    "The action has {count} characters, so it was not taken. Give one short action "
    "of at most {limit} characters."
)

_MARKER = re.compile(r"(?<!\w)Action:")
_THOUGHT = re.compile(r"(?<!\w)Thought:")


def parse_action(text: str, rules: ActionRules) -> ParsedAction:
    """Parses the action in a model's text and cleans it by the rules of one environment.

    Thinking is ignored, except in a raw text without a `block` for one of AgentGym's servers.
    """
    if rules.format is not ActionFormat.RAW or rules.block or rules.ignores_thinking:
        text = split_thinking(text)[1]
    has_marker = rules.format in (ActionFormat.REACT, ActionFormat.REACT_OR_BARE)
    try:
        if has_marker:
            action = _read_react(text, rules)
        elif rules.format is ActionFormat.RAW:
            action = _read_raw(text, rules)
        elif rules.format is ActionFormat.TOOLS:
            action = _read_tool_call(text, rules.tool_form)
        else:
            is_json = rules.format is ActionFormat.FUNCTION_CALLING
            call = calls.read_json_call(text) if is_json else calls.read_python_call(text)
            action = calls.to_action(call, rules.functions)
    except ParseError as error:
        return ParsedAction(None, str(error))
    action = clean_text(action)
    if rules.dropped:
        action = re.sub(r"\s+", " ", re.sub(rules.dropped, "", action)).strip()
    if not action:
        return ParsedAction(None, EMPTY_ACTION if has_marker else EMPTY_ANSWER)
    if len(action) > rules.max_characters:
        problem = LONG_ACTION.format(count=len(action), limit=rules.max_characters)
        return ParsedAction(None, problem)
    return ParsedAction(action)


def _read_react(text: str, rules: ActionRules) -> str:
    """Returns the first non-empty line after `Action:`.

    Follows AgentGym's TextCraft and BabyAI clients, except that an empty action, or a `Thought:` in
    its place, is a parse error.
    """
    markers = list(_MARKER.finditer(text))
    is_bare = bool(rules.bare and re.search(rules.bare, text))
    if rules.format is ActionFormat.REACT_OR_BARE:
        is_bare |= len(text.strip().splitlines()) == 1 and not _THOUGHT.search(text)
    if is_bare and not markers:
        return text.strip()
    if not markers:
        raise ParseError(NO_ACTION)
    if len(markers) > 1:
        raise ParseError(SEVERAL_ACTIONS.format(count=len(markers)))
    action = text[markers[0].end() :].strip().partition("\n")[0].strip()
    if not action or _THOUGHT.match(action):
        raise ParseError(EMPTY_ACTION)
    return action


def _read_tool_call(text: str, form: ToolForm) -> str:
    _, found = parse_tool_calls(text, form)
    if len(found) != 1:
        no_call = NO_CALL.format(form=_describe_form(form))
        raise ParseError(SEVERAL_CALLS.format(count=len(found)) if found else no_call)
    return write_call(found[0]["name"], json.loads(found[0]["arguments"]))


def _describe_form(form: ToolForm) -> str:
    if form.closing:
        return f"write the call between {form.opening} and {form.closing}"
    kind = "list with the call" if form.is_list else "object"
    if form.opening:
        return f"write {form.opening} and a JSON {kind}"
    return f"write it as one JSON {kind} and nothing else"


def _read_raw(text: str, rules: ActionRules) -> str:
    if not rules.block:
        return text.strip()
    finds = list(re.finditer(rules.block, text, re.DOTALL))
    if not finds:
        raise ParseError(rules.block_problem)
    has_group = finds[-1].re.groups > 0
    return (finds[-1].group(1) if has_group else text).strip()
