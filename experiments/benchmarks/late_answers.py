"""Defines turn counts and answer delays of the episodes of `multiturn.py`.

Pure Python, because the workers of other libraries read this file too.
"""

import random
from collections.abc import Mapping


def turns(options: Mapping, episode: int) -> int:
    """Returns the number of turns after which the environment ends an episode."""
    return random.Random(f"turns {episode}").randint(*options["turns"])


def delay_s(options: Mapping, episode: int, turn: int) -> float:
    """Returns a delay in seconds from a Pareto distribution of exponent 1.5, at least `delay_s` and
    at most `max_delay_s`.
    """
    drawn = random.Random(f"delay {episode} {turn}").paretovariate(1.5)
    return min(options["max_delay_s"], options["delay_s"] * drawn)
