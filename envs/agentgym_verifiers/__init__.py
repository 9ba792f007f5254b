"""The environments for the `verifiers` package: `vf-eval agentgym-verifiers`.

This package needs `verifiers` 0.4 or newer, which pip does not install with agentgym-envs. verifiers
finds environments by the name of a package that exports a taskset, an environment and a harness.
"""

from agentgym_verifiers.chat_harness import ChatHarness
from agentgym_verifiers.environment import AgentGymEnv, AgentGymTaskset, load_environment

__all__ = ["AgentGymEnv", "AgentGymTaskset", "ChatHarness", "load_environment"]
