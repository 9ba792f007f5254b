"""Commands that install what an extra of setup.py names."""


def install(extra: str) -> str:
    """Command that installs an extra from a checkout, which is where this project is installed from."""
    return f'pip install -e ".[{extra}]" (in the checkout of agentgym-jax)'
