"""Agent program that plays an environment like the policy of a rollout: observe, think, act.

It shows how a program uses the `openai` package. As a function:
`program.function="agentgym_jax.programs.react:play"`; as a command:
`program.command="python -m agentgym_jax.programs.react"`.
"""

import openai

from agentgym_jax.programs.task import AgentTask


def play(task: AgentTask) -> None:
    """Plays one episode; the environment sets the reward."""
    client = openai.OpenAI(base_url=task.base_url, api_key=task.api_key, max_retries=0)
    messages = [{"role": "system", "content": task.instructions}] if task.instructions else []
    observation = task.reset()
    for _ in range(task.max_turns):
        messages.append({"role": "user", "content": observation})
        answer = client.chat.completions.create(model=task.model, messages=messages)
        text = answer.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": text})
        result = task.act(text)
        if result.done:
            return
        observation = result.observation


if __name__ == "__main__":
    play(AgentTask.from_environ())
