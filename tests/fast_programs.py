"""Settings with which XLA compiles in a third of the time, for programs that run only a few times.

They are not for tests that require the programs of different settings to agree bit for bit.
"""

import jax

# JAX 0.11 no longer has the old loop emitter, and XLA refuses unknown flags.
_HAS_OLD_EMITTER = jax.__version_info__ < (0, 11)
# Compiler options for XLA's old loop emitter.
OLD_EMITTER = {"xla_cpu_use_fusion_emitters": False} if _HAS_OLD_EMITTER else {}


def variables(flags=""):
    """Returns the environment variables of a process; `flags` are further flags of XLA."""
    emitter = "--xla_cpu_use_fusion_emitters=false" if _HAS_OLD_EMITTER else ""
    return {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
        "XLA_FLAGS": f"{flags} {emitter}".strip(),
    }
