"""The shipped configs. From a config of your own: `from agentgym_jax.configs import common`."""
