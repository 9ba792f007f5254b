"""`pytest tests/parity` needs torch; the real checkpoints are named by environment variables."""

import os

REAL = ("AGENTGYM_JAX_REAL_MODEL", "AGENTGYM_JAX_REAL_GGUF")
collect_ignore = [] if any(name in os.environ for name in REAL) else ["test_real_model.py"]
