"""Tasks for the OpenAI Agents SDK; prints the result of the named task."""

import asyncio
import json
import os
import sys

import pydantic
from agents import Agent, ModelSettings, Runner, function_tool, set_default_openai_api

QUESTION = "What is 17 + 25?"
MODEL = os.environ["MODEL"]


class Sum(pydantic.BaseModel):
    """A sum."""

    total: int


@function_tool
def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


def agent(name="adder", **options):
    """Returns an agent with one tool."""
    return Agent(name=name, model=MODEL, tools=[add], instructions="Use tools.", **options)


async def ask(**options):
    output = (await Runner.run(agent(**options), QUESTION)).final_output
    return output if isinstance(output, str) else output.total


async def stream():
    result = Runner.run_streamed(agent(), QUESTION)
    events = [event.data async for event in result.stream_events() if "raw" in event.type]
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    return "".join(deltas)


def required():
    return ask(model_settings=ModelSettings(tool_choice="required", parallel_tool_calls=False))


TASKS = {
    "tools": ask,
    "stream": stream,
    "output_type": lambda: ask(output_type=Sum),
    "required": required,
    "handoff": lambda: ask(handoffs=[agent("other")]),
}
api, task = sys.argv[1].split("/")
set_default_openai_api(api)
sys.stdout.write("\n" + json.dumps(asyncio.run(TASKS[task]())))
