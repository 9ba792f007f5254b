"""Agent program like `react` that replaces a long history by a summary of the policy.

When a conversation is long, the policy is asked for a summary, which continues the conversation
and is trained like any answer. A new conversation then starts with the first observation, the
summary and the latest observation:
`program.function="agentgym_jax.programs.compaction:play"`.
"""

from typing import Annotated

from agentgym_jax.checks.limits import Range
from agentgym_jax.programs.react import Conversation, Policy
from agentgym_jax.programs.task import AgentTask
from agentgym_jax.text.thinking import split_thinking

REQUEST = (
    "The history will be removed. Summarise what you have to know to go on: what you found out, "
    "what you did, and what is left to do."
)


def play(
    task: AgentTask,
    *,
    compact_above: Annotated[int, Range(1, unit="tokens")],
    summary_tokens: Annotated[int, Range(0, unit="tokens")] = 128,
    max_compactions: Annotated[int, Range(0)] = 8,
    request: str = REQUEST,
) -> None:
    """Plays one episode; the environment sets the reward.

    A summary that reaches its limit is used as far as it goes, without thinking. After an empty one,
    the new conversation starts without a summary.

    Args:
      task: Task of the episode.
      compact_above: A conversation with more tokens is replaced after its next observation.
      summary_tokens: Maximum length of a summary; 0 drops the history without asking for one.
      max_compactions: Maximum number of summaries; the last conversation then has no limit but
        that of the episode.
      request: Message that asks for the summary.
    """
    policy = Policy(task)
    conversation = Conversation(policy, task.instructions)
    first = message = task.reset()
    compactions = 0
    while policy.turns_left:
        result = task.act(conversation.ask(message))
        if result.done:
            return
        message = result.observation
        # Without an action after it, a summary would have no effect.
        has_turns = policy.turns_left > (summary_tokens > 0)
        if conversation.num_tokens > compact_above and compactions < max_compactions and has_turns:
            compactions += 1
            summary = ""
            if summary_tokens:
                answer = conversation.ask(request, max_tokens=summary_tokens)
                summary = split_thinking(answer)[1].strip()
            conversation = Conversation(policy, task.instructions)
            summarised = f"Summary: {summary}" if summary else ""
            message = "\n\n".join(filter(None, (first, summarised, message)))
