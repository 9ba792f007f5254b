"""Parsing of actions in a model's answer, by the same rules as the trainer's client."""

import dataclasses
import re

MAX_CHARACTERS = 10_000  # the servers have the same limit

_MARKER = re.compile(r"(?<!\w)Action:")
_THOUGHT = re.compile(r"(?<!\w)Thought:")


@dataclasses.dataclass(frozen=True)
class Parsed:
    """Action of an answer, or the message to the agent about a parse error."""

    action: str = ""
    problem: str = ""


def parse(answer: str, action_format: str) -> Parsed:
    """Parses an answer.

    Args:
      answer: Text of the model.
      action_format: `react` (the action is the line after `Action:`) or `raw` or `tools` (the whole text).
    """
    text = answer.strip()
    if action_format == "react":
        markers = list(_MARKER.finditer(answer))
        if len(markers) != 1:
            return Parsed(
                problem=f"This answer has {len(markers)} actions; expected exactly one line "
                "`Action: ...` with the action to take."
            )
        text = answer[markers[0].end() :].strip().partition("\n")[0].strip()
        if _THOUGHT.match(text):
            text = ""
    if not text:
        return Parsed(problem="The action is empty. Write the action to take.")
    if len(text) > MAX_CHARACTERS:
        return Parsed(
            problem=f"The action has {len(text)} characters; at most {MAX_CHARACTERS} are allowed."
        )
    return Parsed(action=text)
