"""Agent programs for tests, as functions and as a command."""

import concurrent.futures
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
    return ask_whole(task, messages, **fields)["choices"][0]["message"]


def ask_whole(task, messages, **fields):
    """Sends a chat request; returns the answer."""
    body = {"model": task.model, "messages": messages, **fields}
    request = urllib.request.Request(
        f"{task.base_url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def try_to_ask(task, messages, **fields):
    """Sends a chat request that may be refused."""
    with contextlib.suppress(urllib.error.HTTPError):
        ask(task, messages, **fields)


def user(text):
    """Returns a message of a user."""
    return {"role": "user", "content": text}


def one_turn(task):
    """Asks once; even tasks are solved."""
    ask(task, [user(f"task {task.data_idx}")])
    return float(task.data_idx % 2 == 0)


def summariser(task, **fields):
    """Replaces its history after two turns by a summary."""
    messages = [user(f"task {task.data_idx}")]
    for _ in range(2):
        messages += [ask(task, messages, **fields), user("go on")]
    summary = [
        user("so far: " + messages[1]["content"][:5]),
        {"role": "assistant", "content": "ok"},
    ]
    ask(task, [*summary, user("what now?")], **fields)
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


def stop_trainer():
    """Stops the trainer in the 12th call unless the file STOP_FILE exists."""
    path = pathlib.Path(os.environ["STOP_FILE"])
    if next(CALLS) == 11 and not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGTERM)


def stop_once(task):
    """Is a `summariser` that may stop the trainer."""
    stop_trainer()
    return summariser(task)


def untyped(task, limit: "NoSuchType"):  # noqa: F821
    """Has an argument whose type is unknown."""


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


def formed(task):
    """Demands a form in two of three turns, of which one continues the other."""
    messages = [user(f"task {task.data_idx}")]
    ask(task, [user("hello")])
    try_to_ask(task, messages, guided_regex="(")  # is refused, and no turn
    answer = ask(task, messages, guided_regex="[0-9a-f]{9}")
    messages += [answer, user("and?")]
    ask(task, messages, guided_choice=["north", "no way", "south"])
    try_to_ask(task, [user("hello")])
    return 1.0


def wide(task):
    """Asks for more choices than the episode has turns, and then for as many as it has."""
    try_to_ask(task, [user("hello")], n=8)
    ask(task, [user("hello")], n=task.max_turns)
    return 1.0


def only_wide(task):
    """Asks for more choices than the episode has turns; returns a reward without an answer."""
    try_to_ask(task, [user("hello")], n=8)
    return 0.5


def cold(task):
    """Is a `summariser` with other sampling parameters than those of the config."""
    options = {"temperature": 0.0 if task.data_idx else 0.3, "top_p": 0.5, "seed": 3}
    options |= {"presence_penalty": 2.0, "logit_bias": {"65": 100}, "frequency_penalty": 0}
    return summariser(task, **options)


def repeats(task):
    """Sends each request twice, as after a lost answer, and continues the second answer."""
    messages = [user(f"task {task.data_idx}")]
    for _ in range(2):
        ask(task, messages)
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


def two_at_once(task):
    """Has two requests open, and acts on the first answer after the second has arrived."""
    task.reset()
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        first, second = threads.map(
            lambda text: ask_whole(task, [user(text)]), (f"one {task.data_idx}", "two")
        )
    texts = [answer["choices"][0]["message"]["content"] for answer in (first, second)]
    if task.data_idx % 2:
        task.act(texts[0])
    else:
        with contextlib.suppress(ValueError):
            task.act("neither of them")
            raise AssertionError("the answer is ambiguous")
        task.act(f"{texts[0]}!", response_id=first["id"])
    return {"reward": 0.0, "success": texts[0] != texts[1]}


if __name__ == "__main__":
    result = globals()[sys.argv[1]](AgentTask.from_environ())
    sys.stdout.write(f"some output\n{json.dumps(result)}\n")
