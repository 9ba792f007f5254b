"""Tasks for LangGraph with langchain-openai; prints the result of the named task."""

import json
import os
import sys
import warnings

import pydantic
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

QUESTION = {"messages": [("user", "What is 17 + 25?")]}
MODEL = os.environ["MODEL"]


class Sum(pydantic.BaseModel):
    """A sum."""

    total: int


def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


def agent(**options):
    """Returns an agent with one tool."""
    warnings.simplefilter("ignore")  # it has moved to the package `langchain`
    model = ChatOpenAI(model=MODEL, max_retries=0, **options)
    return create_react_agent(model, [add], prompt="Use the tool for sums.")


def ask(**options):
    return agent(**options).invoke(QUESTION)["messages"][-1].text


def stream():
    parts = agent().stream(QUESTION, stream_mode="messages")
    return "".join(part.text for part, about in parts if about["langgraph_node"] == "agent")


def structured():
    """Asks with each method of structured output; each is a separate conversation."""
    model = ChatOpenAI(model=MODEL, max_retries=0)
    methods = ("json_schema", "function_calling", "json_mode")
    models = [model.with_structured_output(Sum, method=method) for method in methods]
    return [model.invoke("What is 17 + 25? Answer in JSON.").total for model in models]


def forced():
    """Forces a call, then sends its result with a free choice."""
    model = ChatOpenAI(model=MODEL, max_retries=0)
    call = model.bind_tools([add], tool_choice="any").invoke(QUESTION["messages"])
    (given,) = call.tool_calls
    result = {"role": "tool", "content": str(add(**given["args"])), "tool_call_id": given["id"]}
    return model.bind_tools([add]).invoke([*QUESTION["messages"], call, result]).text


TASKS = {
    "tools": ask,
    "stream": stream,
    "responses": lambda: ask(use_responses_api=True),
    "structured": structured,
    "forced": forced,
}
sys.stdout.write("\n" + json.dumps(TASKS[sys.argv[1]]()))
