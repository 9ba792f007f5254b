"""Tasks for Pydantic AI; prints the result of the named task."""

import asyncio
import json
import os
import sys

import pydantic
from pydantic_ai import Agent, NativeOutput, PromptedOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

QUESTION = "What is 17 + 25?"
MODEL = os.environ["MODEL"]


class Sum(pydantic.BaseModel):
    """A sum."""

    total: int


def agent(kind=OpenAIChatModel, **options):
    """Returns an agent with one tool."""
    made = Agent(kind(MODEL), system_prompt="Use the tool for sums.", **options)

    @made.tool_plain
    def add(a: int, b: int) -> int:
        """Adds two integers."""
        return a + b

    return made


def ask(**options):
    output = agent(**options).run_sync(QUESTION).output
    return output if isinstance(output, str) else output.total


async def stream():
    async with agent().run_stream(QUESTION) as result:
        return [text async for text in result.stream_text()][-1]


def history():
    """Asks twice; the second question continues the first conversation."""
    made = agent()
    first = made.run_sync(QUESTION)
    return made.run_sync("And twice that?", message_history=first.all_messages()).output


TASKS = {
    "tools": ask,
    "stream": lambda: asyncio.run(stream()),
    "responses": lambda: ask(kind=OpenAIResponsesModel),
    "messages": lambda: ask(kind=AnthropicModel),
    "tool_output": lambda: ask(output_type=Sum),
    "native_output": lambda: ask(output_type=NativeOutput(Sum)),
    "prompted_output": lambda: ask(output_type=PromptedOutput(Sum)),
    "history": history,
}
sys.stdout.write("\n" + json.dumps(TASKS[sys.argv[1]]()))
