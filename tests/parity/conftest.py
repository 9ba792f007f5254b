"""Setup of the comparisons in tests/parity, which need torch.

Environment variables name the subjects of the comparison: the real checkpoints, a checkout of AgentGym (AGENTGYM)
and its running servers (AGENTGYM_SERVERS). Tests without their variable are skipped.
"""

import os

REAL = ("AGENTGYM_JAX_REAL_MODEL", "AGENTGYM_JAX_REAL_GGUF")
collect_ignore = [] if any(name in os.environ for name in REAL) else ["test_real_model.py"]
