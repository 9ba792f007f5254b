"""What an agent is told of its turns, added to what the environment shows.

It may be told its turn limit once (`start`), or before every turn how many are left (`every_turn`).
The words are ours and stand in the conversation like any observation: they are tokens that nobody
learns to say. Records keep the environment's own text beside it.
"""

TELLINGS = ("none", "start", "every_turn")


def check_telling(tell_budget: str) -> None:
    """Raises unless it is one of TELLINGS."""
    if tell_budget not in TELLINGS:
        raise ValueError(f"tell_budget={tell_budget!r}, expected one of {', '.join(TELLINGS)}")


def shown(observation: str, tell_budget: str, *, turns: int, max_turns: int) -> str:
    """What the agent sees.

    Args:
      observation: the environment's text, or what is wrong with an unreadable action.
      tell_budget: one of TELLINGS.
      turns: taken so far.
      max_turns: the limit.
    """
    if tell_budget == "every_turn":
        return f"{observation}\nTurns left: {max_turns - turns}."
    if tell_budget == "start" and not turns:
        return f"{observation}\nTurns for this task: {max_turns}."
    return observation
