"""Reinforcement learning as pure functions.

Imports jax and chex, and no other package of this project.
"""

from agentgym_jax.algorithms.table import ALGORITHMS, Algorithm

__all__ = ["ALGORITHMS", "Algorithm"]
