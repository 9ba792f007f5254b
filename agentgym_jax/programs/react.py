"""Agent program that plays an environment like the policy of a rollout: observe, think, act.

It shows how a program uses the `openai` package; other programs share its parts. As a function:
`program.function="agentgym_jax.programs.react:play"`; as a command:
`program.command="python -m agentgym_jax.programs.react"`.
"""

from typing import Any

import openai
from openai.types.chat import ChatCompletionMessageParam

from agentgym_jax.programs.task import AgentTask

# Of all episodes: a new client takes 40 ms of CPU time to read certificates. The trainer runs on
# this machine, so no proxy is between them.
_http = openai.DefaultHttpxClient(trust_env=False)


class Policy:
    """The policy behind the endpoint of an episode.

    Attributes:
      turns_left: Number of requests that the episode still has, in all conversations together.
    """

    def __init__(self, task: AgentTask):
        self.turns_left = task.max_turns
        # No timeout: a request may wait for an update, and the trainer ends programs that hang.
        self._client = openai.OpenAI(
            base_url=task.base_url,
            api_key=task.api_key,
            max_retries=0,
            timeout=None,
            http_client=_http,
        )
        self._model = task.model

    def answer(self, messages: list[ChatCompletionMessageParam], **options: Any) -> tuple[str, int]:
        """Returns an answer, and the number of tokens of the messages and the answer."""
        self.turns_left -= 1
        answer: Any = self._client.chat.completions.create(
            model=self._model, messages=messages, **options
        )
        return answer.choices[0].message.content or "", answer.usage.total_tokens


class Conversation:
    """One conversation with the policy; it may have no system message.

    Attributes:
      num_tokens: Number of its tokens up to the last answer, as counted by the endpoint.
    """

    def __init__(self, policy: Policy, instructions: str):
        self.num_tokens = 0
        self._policy = policy
        self._messages: list[ChatCompletionMessageParam] = []
        if instructions:
            self._messages.append({"role": "system", "content": instructions})

    def ask(self, text: str, **options: Any) -> str:
        """Sends a message and returns the answer; `options` are fields of the chat request."""
        self._messages.append({"role": "user", "content": text})
        answer, self.num_tokens = self._policy.answer(self._messages, **options)
        self._messages.append({"role": "assistant", "content": answer})
        return answer


def play(task: AgentTask) -> None:
    """Plays one episode; the environment sets the reward."""
    policy = Policy(task)
    conversation = Conversation(policy, task.instructions)
    observation = task.reset()
    while policy.turns_left:
        result = task.act(conversation.ask(observation))
        if result.done:
            return
        observation = result.observation


if __name__ == "__main__":
    play(AgentTask.from_environ())
