"""Programs with the packages of clients, imported when they play, and a shipped program."""

from agentgym_jax.programs import compaction
from tests.programs.programs import TOOLS, stop_trainer, user

SCHEMA = TOOLS[0]["function"]["parameters"]
PLAIN_TOOL = {"name": "look", "description": "Looks around."}


def chat_client(task):
    """Has a conversation with OpenAI's client; uses all turns."""
    import openai

    with openai.OpenAI(base_url=task.base_url, api_key=task.api_key) as client:
        messages = [{"role": "system", "content": "Be kind."}, user(f"task {task.data_idx}")]
        for _ in range(task.max_turns):
            answer = client.chat.completions.create(
                model=task.model, messages=messages, tools=TOOLS
            )
            messages += [answer.choices[0].message, user("go on")]
    return 1.0


def messages_client(task):
    """Has the same conversation with Anthropic's client, the second answer as a stream."""
    import anthropic

    with anthropic.Anthropic(base_url=task.anthropic_url, api_key=task.api_key) as client:
        messages = [user(f"task {task.data_idx}")]
        fields = dict(model=task.model, max_tokens=6, system="Be kind.")
        fields["tools"] = [PLAIN_TOOL | {"input_schema": SCHEMA}]
        for turn in range(task.max_turns):
            client.messages.count_tokens(model=task.model, messages=messages)  # is no turn
            if turn == 1:
                with client.messages.stream(**fields, messages=messages) as stream:
                    answer = stream.get_final_message()
            else:
                answer = client.messages.create(**fields, messages=messages)
            messages += [{"role": "assistant", "content": answer.to_dict()["content"]}]
            messages += [user("go on")]
    return 1.0


def responses_client(task):
    """Has the same conversation with OpenAI's Responses API, the second answer as a stream."""
    import openai

    with openai.OpenAI(base_url=task.base_url, api_key=task.api_key) as client:
        items = [user(f"task {task.data_idx}")]
        fields = dict(model=task.model, instructions="Be kind.")
        fields["tools"] = [PLAIN_TOOL | {"type": "function", "parameters": SCHEMA}]
        for turn in range(task.max_turns):
            answer = client.responses.create(**fields, input=items, stream=turn == 1)
            if turn == 1:
                answer = [event for event in answer][-1].response
            items += [*answer.output, user("go on")]
    return 1.0


def stop_compacting(task):
    """Is the shipped program with a summary after every action, and may stop the trainer."""
    stop_trainer()
    return compaction.play(task, compact_above=1, summary_tokens=5)
