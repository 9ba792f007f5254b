"""Instructions for environments with functions as actions, in each action format.

The text has three parts: the description of the environment, the actions and the answer format. The
second and third parts are generated from the table of functions, so they always agree with the
parser.
"""

from collections.abc import Mapping

from agentgym_jax.client import calls
from agentgym_jax.client.actions import ActionFormat
from agentgym_jax.client.calls import Function

REACT_REPLY = """\
Answer every message in this form, with exactly one action:
Thought: what you want to do and why
Action: the action"""

_FUNCTION_CALLING_REPLY = """\
Act by calling one of these functions:
{functions}

Answer every message with one JSON object and nothing else:
{{"thought": "what you want to do and why", "function_name": "{name}", "arguments": {{{arguments}}}}}"""

_CODE_REPLY = """\
Act by calling one of these Python functions:
{functions}

Answer every message with one block of Python: your thought as a comment, then a single call \
with plain strings. Nothing else is run.
```python
# what you want to do and why
{name}({arguments})
```"""


def with_functions(
    world: str, functions: Mapping[str, Function], action_format: ActionFormat
) -> str:
    """Returns the description of an environment, followed by its functions in an action format."""
    return f"{world}\n\n{_FORMATS[action_format](functions)}"


def _react(table: Mapping[str, Function]) -> str:
    lines = [
        f"{' or '.join(_shown(template) for template in function.templates)} - {function.does}."
        for function in table.values()
    ]
    return "\n".join(["Actions:", *lines, "", REACT_REPLY])


def _function_calling(table: Mapping[str, Function]) -> str:
    name, function = next(iter(table.items()))
    arguments = ", ".join(f'"{p}": "..."' for p in function.parameters)
    return _FUNCTION_CALLING_REPLY.format(
        functions=_signatures(table), name=name, arguments=arguments
    )


def _code(table: Mapping[str, Function]) -> str:
    name, function = next(iter(table.items()))
    arguments = ", ".join(f'{p}="..."' for p in function.parameters)
    return _CODE_REPLY.format(functions=_signatures(table), name=name, arguments=arguments)


_FORMATS = {
    ActionFormat.REACT: _react,
    ActionFormat.FUNCTION_CALLING: _function_calling,
    ActionFormat.CODE_AS_ACTION: _code,
}


def _signatures(table: Mapping[str, Function]) -> str:
    return "\n".join(f"{calls.signature(n, f)} - {f.does}." for n, f in table.items())


def _shown(template: str) -> str:
    return template.replace("{", "<").replace("}", ">")
