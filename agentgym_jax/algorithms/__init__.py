"""Reinforcement learning as pure functions: needs jax and chex, nothing else of this package."""

from agentgym_jax.algorithms.table import ALGORITHMS, Algorithm

__all__ = ["ALGORITHMS", "Algorithm"]
