"""Setup of the comparisons with other implementations, most of which need torch.

Some tests are skipped unless an environment variable is set: AGENTGYM_JAX_REAL_MODEL (path of a
real checkpoint), AGENTGYM (checkout of AgentGym) or AGENTGYM_SERVERS (addresses of its servers).
"""

import os

collect_ignore = [] if "AGENTGYM_JAX_REAL_MODEL" in os.environ else ["test_real_model.py"]
