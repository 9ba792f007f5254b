"""Package of the shipped configs.

Your own config imports it with `from agentgym_jax.configs import common`.
"""
