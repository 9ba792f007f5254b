"""Checks that run in an interpreter with verifiers; test_verifiers.py starts them by name.

verifiers is not installed next to JAX, so pytest cannot import it.
"""

import asyncio
import concurrent.futures
import json
import sys

import even_numbers  # noqa: F401 - found by verifiers under this name
import fake_server
import verifiers.v1 as vf

import agentgym_verifiers
from agentgym_envs.base.served import load_environment
from agentgym_jax.programs.task import AgentTask
from agentgym_jax.programs.verifiers_env import Player, RolloutFailed
from agentgym_verifiers.actions import parse


def completion(text):
    """Returns the body of a chat answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    choice |= {"finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    body = {"id": "x", "object": "chat.completion", "created": 0, "model": "policy"}
    return body | {"choices": [choice], "usage": usage}


def play_textcraft(choose):
    """Plays the first test task of TextCraft; `choose` maps a second world to an answer."""
    served = load_environment("agentgym_envs.textcraft.served")
    served.prepare()
    world = served.factory()
    env = agentgym_verifiers.load_environment("textcraft", max_turns=12)
    task = next(iter(env.taskset))
    world.reset(task.data.data_idx)

    async def play(url):
        client = vf.EvalClientConfig(base_url=f"{url}/v1")
        async with env.serving():
            return await env.run_episode(task, vf.ModelContext("policy", client))

    with fake_server.serving(lambda request: (200, completion(choose(world)))) as server:
        episode = asyncio.run(play(server.url))
    assert episode.ok, episode.errors
    return episode.traces[0], [request.json() for request in server.requests]


def expert():
    """The expert's actions solve the task."""

    def choose(world):
        action = world.expert_action()
        world.step(action)
        return f"Thought: next.\nAction: {action}"

    trace, requests = play_textcraft(choose)
    first = requests[0]["messages"]
    assert [message["role"] for message in first] == ["system", "user"]
    assert "Goal:" in first[1]["content"]
    # every request continues the conversation with one answer and one observation
    assert [len(r["messages"]) for r in requests] == [2 * n + 2 for n in range(len(requests))]
    return [trace.reward, trace.metrics["success"]]


def nonsense():
    """Answers without an action end the episode."""
    trace, requests = play_textcraft(lambda world: "hello")
    assert "expected exactly one line" in requests[1]["messages"][-1]["content"]
    return [trace.reward, trace.metrics["success"], len(requests)]


def turn_limit():
    """A valid action that does not help is repeated until the limit."""
    trace, requests = play_textcraft(lambda world: "Action: inventory")
    return [trace.reward, trace.metrics["success"], len(requests)]


def parse_lines():
    """Parses the answers in the standard input."""
    return [parse(text, form).action for text, form in json.load(sys.stdin)]


def agent_task(url, index, max_turns=3):
    return AgentTask(f"{url}/v1", "none", "policy", "even", index, 0, max_turns, "")


def player():
    """Several threads share a player; failures have messages."""
    play = Player("even-numbers", harness="agentgym_verifiers")
    with fake_server.serving(lambda request: (200, completion("yes"))) as server:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            tasks = [agent_task(server.url, index) for index in range(5)]
            rewards = [result["reward"] for result in pool.map(play, tasks)]
        asked = len(server.requests)
        play(agent_task(server.url, 2, max_turns=1))
        limited = len(server.requests) - asked
        messages = []
        for index in (5, 8):
            try:
                play(agent_task(server.url, index))
            except RolloutFailed as error:
                messages.append(str(error))
    play.close()
    return [rewards, asked, limited, messages]


def user_simulator():
    """A fixed agent must not sample from the policy."""
    harness = {"id": "agentgym_verifiers"}
    config = {"id": "user-sim", "user": {"harness": harness}}
    play = Player("even-numbers", harness=harness["id"], config=config)
    try:
        with fake_server.serving(lambda request: (200, completion("###DONE###"))) as server:
            play(agent_task(server.url, 0))
    except RolloutFailed as error:
        return str(error)
    finally:
        play.close()


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(globals()[sys.argv[1]]()) + "\n")
