"""Multi-turn reinforcement learning of LLM agents against real environments, in JAX."""

from agentgym_envs import __version__ as __version__  # one distribution installs both packages
