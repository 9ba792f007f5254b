"""`pytest tests/parity` needs torch.

Environment variables name what else is compared with: the real checkpoints, a checkout of AgentGym
(AGENTGYM) and running servers of it (AGENTGYM_SERVERS). What is not named is left out.
"""

import os

REAL = ("AGENTGYM_JAX_REAL_MODEL", "AGENTGYM_JAX_REAL_GGUF")
collect_ignore = [] if any(name in os.environ for name in REAL) else ["test_real_model.py"]
