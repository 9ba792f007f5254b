"""RL algorithms as pure functions, with jax and chex as their only dependencies."""

from agentgym_jax.algorithms.table import ALGORITHMS, Algorithm

__all__ = ["ALGORITHMS", "Algorithm"]
