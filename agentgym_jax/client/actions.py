"""Parsing of a model's text into the action that is sent to an environment.

A parse error is the policy's mistake, never a failure of the environment: the agent gets a short
message, and no request is sent. A model's text is never executed.
"""

import dataclasses
import enum
import re
from collections.abc import Mapping

from agentgym_jax.client import calls
from agentgym_jax.client.calls import Function


class ActionFormat(enum.StrEnum):
    """Syntax of an action: the value of `action_format` in a server's spec and in a config."""

    REACT = "react"  # the action is the line after `Action:`
    REACT_OR_BARE = "react_or_bare"  # as in `react`, or the action is the only line of the text
    RAW = "raw"  # the action is the whole text
    # a JSON object with `thought`, `function_name` and `arguments`
    FUNCTION_CALLING = "function_calling"
    CODE_AS_ACTION = "code_as_action"  # one Python call, with the thought in comments


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
    """

    format: ActionFormat
    max_characters: int
    dropped: str = ""
    bare: str = ""
    block: str = ""
    block_problem: str = ""
    functions: Mapping[str, Function] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ParsedAction:
    """Result of parsing a reply of the model.

    Attributes:
      action: Action for the environment; None unless the text has exactly one.
      thought: Text before the action; None if there is none.
      problem: Message to the agent; None if there is an action.
    """

    action: str | None
    thought: str | None
    problem: str | None


NO_ACTION = (
    "No action was found in this answer. "
    "Finish with one line `Action: ...` that holds the action to take."
)
SEVERAL_ACTIONS = "This answer holds {count} actions, so none was taken. Give exactly one `Action:` in each answer."
EMPTY_ACTION = "The action is empty. Write the action to take after `Action:`."
EMPTY_ANSWER = "This answer holds no action. Write the action to take."
LONG_ACTION = (
    "The action has {count} characters, so it was not taken. Give one short action "
    "of at most {limit} characters."
)

_MARKER = re.compile(r"(?<!\w)Action:")
_THOUGHT = re.compile(r"(?<!\w)Thought:")


def parse_react(text: str) -> ParsedAction:
    """Parses `Thought: ... Action: ...`; the action is the first non-empty line after its marker.

    Follows AgentGym's TextCraft and BabyAI clients, except that an empty action, or a `Thought:` in
    its place, is a parse error.
    """
    markers = list(_MARKER.finditer(text))
    if not markers:
        return ParsedAction(None, _thought(text), NO_ACTION)
    thought = _thought(text[: markers[0].start()])
    if len(markers) > 1:
        return ParsedAction(None, thought, SEVERAL_ACTIONS.format(count=len(markers)))
    action = text[markers[0].end() :].strip().partition("\n")[0].strip()
    if not action or _THOUGHT.match(action):
        return ParsedAction(None, thought, EMPTY_ACTION)
    return ParsedAction(action, thought, None)


def parse_action(text: str, rules: ActionRules) -> ParsedAction:
    """Parses the action in a model's text and cleans it by the rules of one environment."""
    has_marker = rules.format in (ActionFormat.REACT, ActionFormat.REACT_OR_BARE)
    if has_marker:
        parsed = _react(text, rules)
    else:
        parsed = _raw(text, rules) if rules.format is ActionFormat.RAW else _call(text, rules)
    if parsed.action is None:
        return parsed
    action = parsed.action
    if rules.dropped:
        action = re.sub(r"\s+", " ", re.sub(rules.dropped, "", action)).strip()
    if not action:
        empty = EMPTY_ACTION if has_marker else EMPTY_ANSWER
        return ParsedAction(None, parsed.thought, empty)
    if len(action) > rules.max_characters:
        problem = LONG_ACTION.format(count=len(action), limit=rules.max_characters)
        return ParsedAction(None, parsed.thought, problem)
    return ParsedAction(action, parsed.thought, None)


def _react(text: str, rules: ActionRules) -> ParsedAction:
    is_bare = bool(rules.bare and re.search(rules.bare, text))
    if rules.format is ActionFormat.REACT_OR_BARE:
        is_bare |= len(text.strip().splitlines()) == 1 and not _THOUGHT.search(text)
    if is_bare and not _MARKER.search(text):
        return ParsedAction(text.strip(), None, None)
    return parse_react(text)


def _raw(text: str, rules: ActionRules) -> ParsedAction:
    if not rules.block:
        return ParsedAction(text.strip(), None, None)
    finds = list(re.finditer(rules.block, text, re.DOTALL))
    if not finds:
        return ParsedAction(None, _thought(text), rules.block_problem)
    if finds[-1].re.groups == 0:
        return ParsedAction(text.strip(), None, None)
    before = _MARKER.sub("", text[: finds[-1].start()])
    return ParsedAction(finds[-1].group(1).strip(), _thought(before), None)


def _call(text: str, rules: ActionRules) -> ParsedAction:
    is_json = rules.format is ActionFormat.FUNCTION_CALLING
    thought = None
    try:
        call = calls.read_json_call(text) if is_json else calls.read_python_call(text)
        thought = call.thought
        return ParsedAction(calls.to_action(call, rules.functions), thought, None)
    except calls.UnreadableCall as error:
        return ParsedAction(None, thought, str(error))


def _thought(before: str) -> str | None:
    """Returns the text after the first `Thought:`, or the whole text if it has no such marker."""
    marker = _THOUGHT.search(before)
    return (before[marker.end() :] if marker else before).strip() or None
