"""Text of OpenEnv's observations, and actions from a model's text, by the schemas of a server."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from agentgym_envs.base.protocol import read_call
from agentgym_jax.client.actions import ActionFormat
from agentgym_jax.client.answers import Answer
from agentgym_jax.client.calls import ParseError
from agentgym_jax.client.instructions import REACT_REPLY
from agentgym_jax.client.server_facts import MAX_TEXT_CHARACTERS

TEXT_FIELDS = ("text", "message", "content")  # usual names of an observation's text
_RESULT_FIELDS = ("metadata", "done", "reward")  # fields of every observation
TOOL_ERROR = "Error: "  # beginning of the text of a failed call
NO_OUTPUT = "[no output]"  # result of a call that returns nothing
_NO_TEXT = "The task has begun."  # first observation of a server that sends none
_NO_OBJECT = "The action must be one JSON object with the fields of an action, and nothing else."
_RAW_REPLY = "Answer every message with the action and nothing else."

Schema = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class ObservationForm:
    """Place of the text in an observation.

    Attributes:
      field: Field that holds the text; if empty, the text is the JSON of the whole observation.
      is_result: True for the result of a tool's call, or a first observation with any fields.
    """

    field: str
    is_result: bool = False

    def text(self, observation: Answer) -> str:
        """Returns the text for the agent; raises EnvError if the field is missing."""
        if self.is_result:
            return _result_text(observation.value(dict))
        if self.field:
            return observation.field(self.field, str)
        shown = {k: v for k, v in observation.value(dict).items() if k not in _RESULT_FIELDS}
        return json.dumps(shown, ensure_ascii=False)


def _result_text(observation: Mapping[str, Any]) -> str:
    """Returns the text of a call's result or error, or of a first observation."""
    error, result = observation.get("error"), observation.get("result")
    if isinstance(error, dict):
        return f"{TOOL_ERROR}{error.get('message', error)}"
    if result is None:
        return NO_OUTPUT if "result" in observation else _first_text(observation)
    if isinstance(result, str):
        return result
    blocks = result.get("content") if isinstance(result, dict) else None
    if not isinstance(blocks, list):
        return json.dumps(result, ensure_ascii=False)
    parts = [block for block in blocks if isinstance(block, dict)]
    text = "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    is_error = result.get("is_error") is True or result.get("isError") is True
    return f"{TOOL_ERROR}{text}" if is_error else text


def _first_text(observation: Mapping[str, Any]) -> str:
    """Returns the text of an observation, which may be in its metadata."""
    metadata = observation.get("metadata")
    for place in (observation, metadata if isinstance(metadata, dict) else {}):
        for name in TEXT_FIELDS:
            if isinstance(place.get(name), str):
                return place[name]
    others = {k: v for k, v in observation.items() if k not in _RESULT_FIELDS and v is not None}
    shown = others or metadata
    return json.dumps(shown, ensure_ascii=False) if shown else _NO_TEXT


def observation_form(schema: Answer) -> ObservationForm:
    """Returns the form of the observations that have a JSON schema.

    The text is in a field with one of the names `TEXT_FIELDS`, or in the only field that is a string.
    """
    fields = _fields(schema)
    strings = [name for name, field in fields.items() if field.get("type") == "string"]
    named = [name for name in TEXT_FIELDS if name in strings]
    if named or len(strings) == 1:
        return ObservationForm((named or strings)[0])
    return ObservationForm("")


@dataclasses.dataclass(frozen=True)
class ActionForm:
    """Form of a server's actions.

    Attributes:
      field: Field that holds the action's text; if empty, the text is a JSON object.
      constants: Fields that have the same value in every action.
      choices: Possible texts; empty if every text is possible.
      max_characters: Maximum length of a text.
      description: Description of an action for the agent; may be empty.
      is_call: True if an action is a call of a tool, with `tool_name` and `arguments`.
    """

    field: str
    constants: Mapping[str, Any]
    choices: tuple[str, ...]
    max_characters: int
    description: str
    is_call: bool = False

    def action(self, text: str) -> dict[str, Any]:
        """Converts a text to an action.

        Raises:
          ParseError: The text is not one of the choices, or not a JSON object.
        """
        if self.field:
            if self.choices and text not in self.choices:
                raise ParseError(f"The action must be one of: {', '.join(self.choices)}.")
            return {**self.constants, self.field: text}
        if self.is_call:
            try:
                name, arguments = read_call(text)
            except ValueError as error:
                raise ParseError(f"{error}.") from None
            return {**self.constants, "tool_name": name, "arguments": arguments}
        try:
            found = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise ParseError(_NO_OBJECT) from None
        if not isinstance(found, dict):
            raise ParseError(_NO_OBJECT)
        return {**self.constants, **found}

    def instructions(self, world: str, action_format: ActionFormat) -> str:
        """Returns the system prompt, given the description of the environment."""
        if self.is_call:
            return world.strip() or "Solve the task with the tools."
        reply = _RAW_REPLY if action_format is ActionFormat.RAW else REACT_REPLY
        return "\n\n".join(part for part in (world.strip(), self.description, reply) if part)


def action_form(schema: Answer) -> ActionForm:
    """Returns the form of the actions that have a JSON schema.

    Actions of the MCP kind have the fields `tool_name` and `arguments`. Actions are texts if they
    have one field besides `metadata` and constants, and it is a string.
    """
    fields = {name: field for name, field in _fields(schema).items() if name != "metadata"}
    constants = {name: field["const"] for name, field in fields.items() if "const" in field}
    free = {name: field for name, field in fields.items() if name not in constants}
    if set(free) == {"tool_name", "arguments"}:
        return ActionForm("", constants, (), MAX_TEXT_CHARACTERS, "", is_call=True)
    name, field = next(iter(free.items())) if len(free) == 1 else ("", {})
    if not name or field.get("type") != "string":
        lines = [_described(name, field) for name, field in free.items()]
        listed = "\n".join(["The action is one JSON object with these fields:", *lines])
        return ActionForm("", constants, (), MAX_TEXT_CHARACTERS, listed if free else "")
    limit = field["maxLength"] if "maxLength" in field else MAX_TEXT_CHARACTERS
    choices = tuple(map(str, field["enum"])) if "enum" in field else ()
    text = f"The action: {field['description']}" if "description" in field else ""
    if choices:
        text = "\n".join(part for part in (text, f"Possible actions: {', '.join(choices)}") if part)
    return ActionForm(name, constants, choices, min(limit, MAX_TEXT_CHARACTERS), text)


def _fields(schema: Answer) -> dict[str, Schema]:
    """Returns the schemas of an object's fields, without those that every observation has."""
    if "properties" not in schema.value(dict):
        return {}
    fields = schema.field("properties", dict)
    for field in fields.values():
        dataclasses.replace(schema, body=field).value(dict)
    shared = schema.body.get("$defs")
    named = shared if isinstance(shared, dict) else {}
    return {k: _resolved(field, named) for k, field in fields.items() if k not in _RESULT_FIELDS}


def _resolved(field: Schema, named: Mapping[str, Any]) -> Schema:
    """Returns a field with the keys of the named schema to which it refers, such as an enum."""
    place, _, name = str(field.get("$ref", "")).rpartition("/")
    found = named.get(name) if place == "#/$defs" else None
    return {**found, **field} if isinstance(found, dict) else field


def _described(name: str, field: Schema) -> str:
    facts = [str(field["type"])] if "type" in field else []
    if isinstance(field.get("enum"), list):
        facts.append(f"one of {', '.join(map(json.dumps, field['enum']))}")
    kind = f" ({', '.join(facts)})" if facts else ""
    text = f": {field['description']}" if "description" in field else ""
    return f"- {name}{kind}{text}"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
