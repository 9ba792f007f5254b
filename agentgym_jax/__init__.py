"""Multi-turn reinforcement learning of LLM agents against real environments, in JAX."""

__version__ = "0.1.0"
