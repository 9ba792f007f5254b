"""Tasks for smolagents; prints the result of the named task."""

import json
import os
import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def add(a: int, b: int) -> int:
    """Adds two integers.

    Args:
        a: First one.
        b: Second one.
    """
    return a + b


def ask(kind, **options):
    model = OpenAIServerModel(os.environ["MODEL"], api_base=os.environ["OPENAI_BASE_URL"])
    agent = kind(tools=[add], model=model, max_steps=3, verbosity_level=0, **options)
    return agent.run("What is 17 + 25?")


def forget_calls(step, agent):
    """Keeps the text "Calling tools: ..." out of the history."""
    step.tool_calls = None


TASKS = {
    "tools": lambda: ask(ToolCallingAgent),
    "stream": lambda: ask(ToolCallingAgent, stream_outputs=True),
    "code": lambda: ask(CodeAgent),
    "exact_code": lambda: ask(CodeAgent, step_callbacks=[forget_calls]),
    "structured_code": lambda: ask(CodeAgent, use_structured_outputs_internally=True),
}
sys.stdout.write("\n" + json.dumps(TASKS[sys.argv[1]]()))
