"""How many turns the episodes of `multiturn.py` have and how late their environments answer.

Pure Python: the workers of other libraries read it too.
"""

import random
from collections.abc import Mapping


def turns(options: Mapping, episode: int) -> int:
    """After how many turns the environment ends an episode."""
    return random.Random(f"turns {episode}").randint(*options["turns"])


def delay_s(options: Mapping, episode: int, turn: int) -> float:
    """Pareto with exponent 1.5 from `delay_s` on, cut at `max_delay_s`."""
    drawn = random.Random(f"delay {episode} {turn}").paretovariate(1.5)
    return min(options["max_delay_s"], options["delay_s"] * drawn)
