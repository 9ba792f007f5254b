"""Agent programs for tests, as functions and as a command."""

import contextlib
import itertools
import json
import os
import pathlib
import signal
import sys
import threading
import urllib.error
import urllib.request

from agentgym_jax.programs.task import AgentTask


def ask(task, messages, **fields):
    """Sends a chat request; returns the message of the answer."""
    body = {"model": task.model, "messages": messages, **fields}
    request = urllib.request.Request(
        f"{task.base_url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["choices"][0]["message"]


def try_to_ask(task, messages):
    """Sends a chat request that may be refused."""
    with contextlib.suppress(urllib.error.HTTPError):
        ask(task, messages)


def user(text):
    """Returns a message of a user."""
    return {"role": "user", "content": text}


def one_turn(task):
    """Asks once; even tasks are solved."""
    ask(task, [user(f"task {task.data_idx}")])
    return float(task.data_idx % 2 == 0)


def summariser(task):
    """Replaces its history after two turns by a summary."""
    messages = [user(f"task {task.data_idx}")]
    for _ in range(2):
        messages += [ask(task, messages), user("go on")]
    summary = [
        user("so far: " + messages[1]["content"][:5]),
        {"role": "assistant", "content": "ok"},
    ]
    ask(task, [*summary, user("what now?")])
    return {"reward": 0.5, "success": True}


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks around.",
            "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
        },
    }
]


def tools(task):
    """Offers a tool, and answers as if the model had called it."""
    messages = [user(f"task {task.data_idx}")]
    answer = ask(task, messages, tools=TOOLS)
    call = {
        "id": "call_0",
        "type": "function",
        "function": {"name": "look", "arguments": '{"where": "north"}'},
    }
    answer["tool_calls"] = answer.get("tool_calls") or [call]
    messages += [answer, {"role": "tool", "tool_call_id": "call_0", "content": "a door"}]
    ask(task, messages, tools=TOOLS)
    return float(task.sample % 2)


CALLS = itertools.count()


def stop_once(task):
    """Is a `summariser`; the 12th call stops the trainer unless the file STOP_FILE exists."""
    path = pathlib.Path(os.environ["STOP_FILE"])
    if next(CALLS) == 11 and not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGTERM)
    return summariser(task)


def parallel(task):
    """Asks in three threads at once."""
    threads = [
        threading.Thread(target=try_to_ask, args=(task, [user(f"part {i} of {task.data_idx}")]))
        for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1.0


def crash(task):
    """Fails after a request."""
    ask(task, [user("hello")])
    raise RuntimeError("the program is broken")


def crash_sometimes(task):
    """Fails for task 1 only."""
    return crash(task) if task.data_idx == 1 else one_turn(task)


def silent(task):
    """Returns a reward without a request."""
    return 1.0


def hang(task):
    """Never returns for task 0."""
    ask(task, [user("hello")])
    if task.data_idx == 0:
        threading.Event().wait()
    return 0.0


def wrong_result(task):
    """Returns something else than a reward."""
    ask(task, [user("hello")])
    return "very good"


def endless(task):
    """Asks until it is refused."""
    messages = [user("hello")]
    while True:
        messages += [ask(task, messages), user("go on")]


def persistent(task):
    """Sends invalid requests before every valid one."""
    messages = [user("hello")]
    for _ in range(task.max_turns):
        try_to_ask(task, [*messages, {"role": "assistant", "content": "must not be last"}])
        messages += [ask(task, messages), user("go on")]
    return 1.0


def long_prompt(task):
    """Sends more than fits the context."""
    ask(task, [user("hello")])
    ask(task, [user("x" * 5000)])
    return 1.0


def react(task):
    """Plays the environment."""
    messages, observation = [], task.reset()
    for _ in range(task.max_turns):
        messages.append(user(observation))
        messages.append({"role": "assistant", "content": ask(task, messages)["content"]})
        result = task.act(messages[-1]["content"])
        if result.done:
            return
        observation = result.observation


def two_conversations(task):
    """Plays the environment in turns of two conversations; returns its reward."""
    conversations = [[user("one")], [user("two")]]
    task.reset()
    for messages in (conversations[0], conversations[1], conversations[0]):
        messages.append(ask(task, messages))
        result = task.act(messages[-1]["content"])
        messages.append(user(result.observation))
        if result.done:
            break
    return 0.25


if __name__ == "__main__":
    result = globals()[sys.argv[1]](AgentTask.from_environ())
    sys.stdout.write(f"some output\n{json.dumps(result)}\n")
