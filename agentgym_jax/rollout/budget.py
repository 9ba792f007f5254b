"""Turn budget shown to the agent in its observations.

The agent reads its turn limit once (`start`) or the number of remaining turns before every turn
(`every_turn`). This text is part of the observation, so it is never trained on. Records also
contain the environment's original text.
"""

TURN_BUDGETS = ("none", "start", "every_turn")


def shown(observation: str, show_turn_budget: str, *, turns: int, max_turns: int) -> str:
    """Returns the observation with the turn budget added, as the agent reads it.

    Args:
      observation: Text of the environment, or the message about a parse error.
      show_turn_budget: One of TURN_BUDGETS.
      turns: Number of turns taken.
      max_turns: Turn limit.
    """
    if show_turn_budget == "every_turn":
        return f"{observation}\nTurns left: {max_turns - turns}."
    if show_turn_budget == "start" and not turns:
        return f"{observation}\nTurns for this task: {max_turns}."
    return observation
