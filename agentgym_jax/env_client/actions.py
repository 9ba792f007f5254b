"""From the text of a model to the action an environment is sent.

An unreadable text is the policy's mistake: it gives a short message for the agent and
no request. It must never look like a failure of the environment.
"""

import dataclasses
import enum
import re


class ActionFormat(enum.StrEnum):
    """How an action is written; the `action_format` of a server's spec."""

    REACT = "react"  # one line after `Action:`
    RAW = "raw"  # the whole text


@dataclasses.dataclass(frozen=True)
class ActionRules:
    """How the text for one environment is read.

    Attributes:
      format: where in the text the action stands.
      dropped: regular expression of the characters that are removed from an action.
      max_characters: longer actions are refused here, so that a server's size limit is
        never mistaken for a failure of the environment.
    """

    format: ActionFormat
    dropped: str
    max_characters: int


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
    if rules.format is ActionFormat.REACT:
        parsed = parse_react(text)
    else:
        parsed = ParsedAction(text.strip(), None, None)
    if parsed.action is None:
        return parsed
    action = parsed.action
    if rules.dropped:
        action = _SPACES.sub(" ", re.sub(rules.dropped, "", action)).strip()
    if not action:
        return ParsedAction(None, parsed.thought, EMPTY_ACTION)
    if len(action) > rules.max_characters:
        problem = LONG_ACTION.format(count=len(action), limit=rules.max_characters)
        return ParsedAction(None, parsed.thought, problem)
    return ParsedAction(action, parsed.thought, None)


def _thought(before: str) -> str | None:
    """The text after the first `Thought:`, or the whole text if it has no such marker."""
    marker = _THOUGHT.search(before)
    thought = (before[marker.end() :] if marker else before).strip()
    return thought or None
