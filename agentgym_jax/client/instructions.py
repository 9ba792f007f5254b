"""Instructions for environments with functions as actions, in each action format.

The actions and the answer format are generated from the table of functions that the parser uses.
"""

from collections.abc import Mapping

from agentgym_jax.client import calls
from agentgym_jax.client.actions import ActionFormat
from agentgym_jax.client.calls import Function

REACT_REPLY = """\
Answer every message in this form, with exactly one action:
Thought: what you want to do and why
Action: the action"""

_JSON_REPLY = """\
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
    if action_format is ActionFormat.REACT:
        lines = [f"{' or '.join(f.templates)} - {f.does}." for f in functions.values()]
        shown = "\n".join(lines).replace("{", "<").replace("}", ">")
        return f"{world}\n\nActions:\n{shown}\n\n{REACT_REPLY}"
    is_json = action_format is ActionFormat.FUNCTION_CALLING
    reply, argument = (_JSON_REPLY, '"{}": "..."') if is_json else (_CODE_REPLY, '{}="..."')
    name, example = next(iter(functions.items()))
    shown = "\n".join(f"{calls.signature(n, f)} - {f.does}." for n, f in functions.items())
    arguments = ", ".join(argument.format(parameter) for parameter in example.parameters)
    return f"{world}\n\n{reply.format(functions=shown, name=name, arguments=arguments)}"
