"""Reinforcement learning as pure functions, which import only jax and chex."""

from agentgym_jax.algorithms.table import ALGORITHMS, Algorithm

__all__ = ["ALGORITHMS", "Algorithm"]
