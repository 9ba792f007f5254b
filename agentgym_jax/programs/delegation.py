"""Agent program like `react` whose policy may give parts of its task to a sub-agent.

The sub-agent is the same policy in another conversation. It plays the same environment until
it reports, and the main conversation gets only the report and the latest observation:
`program.function="agentgym_jax.programs.delegation:play"`.
"""

import re
from typing import Annotated

from agentgym_jax.checks.limits import Range
from agentgym_jax.programs.react import Conversation, Policy
from agentgym_jax.programs.task import AgentTask
from agentgym_jax.text.thinking import split_thinking

MAIN = (
    "You may give a part of the task to an assistant who acts for you. Then reply, instead of an "
    "action, with the line\nDelegate: what the assistant shall do or find out"
)
ASSISTANT = (
    "You do a part of a task for another agent. When it is done, or cannot be done, reply, instead "
    "of an action, with the line\nReport: the result"
)
NO_REPORT = "none, the assistant has used its turns"
REFUSED = "No assistant is available. Reply with an action."
_DELEGATE = re.compile(r"^Delegate:[ \t]*(.*\S)", re.MULTILINE)
_REPORT = re.compile(r"^Report:\s*(.*\S)", re.MULTILINE | re.DOTALL)


def play(
    task: AgentTask,
    *,
    max_delegations: Annotated[int, Range(0)] = 4,
    assistant_turns: Annotated[int, Range(1, unit="turns")] = 8,
    main_instructions: str = MAIN,
    assistant_instructions: str = ASSISTANT,
) -> None:
    """Plays one episode; the environment sets the reward.

    A sub-agent cannot delegate. A delegation that is not possible takes a turn and changes nothing.

    Args:
      task: Task of the episode.
      max_delegations: Maximum number of sub-agents.
      assistant_turns: Maximum number of answers of a sub-agent.
      main_instructions: Text after the environment's instructions in the main conversation.
      assistant_instructions: The same in the conversation of a sub-agent.
    """
    policy = Policy(task)
    main = Conversation(policy, _join(task.instructions, main_instructions))
    message = observation = task.reset()
    delegations = 0
    while policy.turns_left:
        answer = main.ask(message)
        order = _find(_DELEGATE, answer)
        if order and delegations < max_delegations:
            delegations += 1
            assistant = Conversation(policy, _join(task.instructions, assistant_instructions))
            report, observation, done = _assist(
                task, policy, assistant, order[1], observation, assistant_turns
            )
            message = _join(f"Report: {report}", observation)
        elif order:
            message, done = _join(REFUSED, observation), False
        else:
            result = task.act(answer)
            message = observation = result.observation
            done = result.done
        if done:
            return


def _assist(
    task: AgentTask,
    policy: Policy,
    assistant: Conversation,
    order: str,
    observation: str,
    turns: int,
) -> tuple[str, str, bool]:
    """Returns the report of a sub-agent, the latest observation, and True if the episode has ended."""
    message = _join(order, observation)
    for _ in range(min(turns, policy.turns_left)):
        answer = assistant.ask(message)
        if report := _find(_REPORT, answer):
            return report[1], observation, False
        if _find(_DELEGATE, answer):
            message = _join(REFUSED, observation)
            continue
        result = task.act(answer)
        message = observation = result.observation
        if result.done:
            return NO_REPORT, observation, True
    return NO_REPORT, observation, False


def _find(pattern: re.Pattern[str], answer: str) -> re.Match[str] | None:
    """Finds a pattern in an answer, but not in its thinking."""
    return pattern.search(split_thinking(answer)[1])


def _join(*parts: str) -> str:
    """Returns the parts that are not empty as paragraphs."""
    return "\n\n".join(filter(None, parts))
