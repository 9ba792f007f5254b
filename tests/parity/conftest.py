"""Setup of the comparisons in tests/parity, which need torch.

Environment variables name what is compared: a real checkpoint (AGENTGYM_JAX_REAL_MODEL), a checkout
of AgentGym (AGENTGYM) and its running servers (AGENTGYM_SERVERS). Tests without their variable are
skipped.
"""

import os

collect_ignore = [] if "AGENTGYM_JAX_REAL_MODEL" in os.environ else ["test_real_model.py"]
