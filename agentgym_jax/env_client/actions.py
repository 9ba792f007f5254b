"""From the text of a model to the action an environment is sent.

An unreadable text is the policy's mistake: it gives a short message for the agent and
no request. It must never look like a failure of the environment. Nothing that a model
writes is ever executed: calls are read with `json` and `ast` (env_client/calls.py).
"""

import dataclasses
import enum
import re
from collections.abc import Callable, Mapping

from agentgym_jax.env_client import calls
from agentgym_jax.env_client.calls import Function


class ActionFormat(enum.StrEnum):
    """How an action is written; the `action_format` of a server's spec and of a run's config."""

    REACT = "react"  # one line after `Action:`
    REACT_OR_BARE = "react_or_bare"  # the same, or the action alone on the only line of the text
    RAW = "raw"  # the whole text
    FUNCTION_CALLING = "function_calling"  # a JSON object with thought, function_name, arguments
    CODE_AS_ACTION = "code_as_action"  # one Python call, the thought as comments


@dataclasses.dataclass(frozen=True)
class ActionRules:
    """How the text for one environment is read.

    Attributes:
      format: where in the text the action stands.
      dropped: regular expression of the characters that are removed from an action.
      max_characters: longer actions are refused here, so that a server's size limit is
        never mistaken for a failure of the environment.
      bare: regular expression; a text without `Action:` in which it is found is an action
        as a whole.
      block: regular expression that must be found in a raw text. If it has a group, the
        last find's group is the action, else the whole text.
      block_problem: message for the agent if the block is missing.
      functions: what can be called in the formats that are made of calls, by name.
    """

    format: ActionFormat
    dropped: str
    max_characters: int
    bare: str = ""
    block: str = ""
    block_problem: str = ""
    functions: Mapping[str, Function] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ParsedAction:
    """What was read from a model's text.

    Attributes:
      action: what the environment is sent; None if there is not exactly one action.
      thought: what the model wrote before the action; None if it wrote nothing.
      problem: message for the agent; None exactly if there is an action.
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

# The action may follow on the next line (`Action:\nturn left`), as in AgentGym's demonstrations.
_MARKER = re.compile(r"(?<!\w)Action:")
_THOUGHT = re.compile(r"(?<!\w)Thought:")
_SPACES = re.compile(r"\s+")


def parse_react(text: str) -> ParsedAction:
    """Reads `Thought: ... Action: ...`; the action is the first non-empty line after its marker.

    As AgentGym's TextCraft and BabyAI clients read it, with two differences: a text without
    an action is a problem instead of an empty action, and a `Thought:` that follows an empty
    `Action:` is not taken for the action.
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
    """Reads and cleans the action of a model's text by the rules of one environment."""
    parsed = _PARSERS[rules.format](text, rules)
    if parsed.action is None:
        return parsed
    action = parsed.action
    if rules.dropped:
        action = _SPACES.sub(" ", re.sub(rules.dropped, "", action)).strip()
    if not action:
        has_marker = rules.format in (ActionFormat.REACT, ActionFormat.REACT_OR_BARE)
        empty = EMPTY_ACTION if has_marker else EMPTY_ANSWER
        return ParsedAction(None, parsed.thought, empty)
    if len(action) > rules.max_characters:
        problem = LONG_ACTION.format(count=len(action), limit=rules.max_characters)
        return ParsedAction(None, parsed.thought, problem)
    return ParsedAction(action, parsed.thought, None)


def _react(text: str, rules: ActionRules) -> ParsedAction:
    is_bare = rules.bare and not _MARKER.search(text) and re.search(rules.bare, text)
    return ParsedAction(text.strip(), None, None) if is_bare else parse_react(text)


def _react_or_bare(text: str, rules: ActionRules) -> ParsedAction:
    lines = text.strip().splitlines()
    is_marked = _MARKER.search(text) or _THOUGHT.search(text)
    if len(lines) != 1 or is_marked:
        return _react(text, rules)
    return ParsedAction(lines[0].strip(), None, None)


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


def _function_calling(text: str, rules: ActionRules) -> ParsedAction:
    return _call(text, rules, calls.read_json_call)


def _code_as_action(text: str, rules: ActionRules) -> ParsedAction:
    return _call(text, rules, calls.read_python_call)


def _call(text: str, rules: ActionRules, read: Callable[[str], calls.Call]) -> ParsedAction:
    try:
        call = read(text)
    except calls.UnreadableCall as error:
        return ParsedAction(None, None, str(error))
    try:
        return ParsedAction(calls.to_action(call, rules.functions), call.thought, None)
    except calls.UnreadableCall as error:
        return ParsedAction(None, call.thought, str(error))


_PARSERS: Mapping[ActionFormat, Callable[[str, ActionRules], ParsedAction]] = {
    ActionFormat.REACT: _react,
    ActionFormat.REACT_OR_BARE: _react_or_bare,
    ActionFormat.RAW: _raw,
    ActionFormat.FUNCTION_CALLING: _function_calling,
    ActionFormat.CODE_AS_ACTION: _code_as_action,
}


def _thought(before: str) -> str | None:
    """The text after the first `Thought:`, or the whole text if it has no such marker."""
    marker = _THOUGHT.search(before)
    thought = (before[marker.end() :] if marker else before).strip()
    return thought or None
