"""Commands that install the packages of an extra of setup.py."""


def install(extra: str) -> str:
    """Returns the command that installs an extra of this project from a checkout."""
    return f'pip install -e ".[{extra}]" (in the checkout of agentgym-jax)'
