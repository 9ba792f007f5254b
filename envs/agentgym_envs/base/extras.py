"""Commands that install the packages of an extra of setup.py."""


def install(extra: str, alone: str = "") -> str:
    """Returns the command that installs an extra of this project from a checkout.

    `alone` is a further package without its requirements, of which the extra has those that are
    used.
    """
    command = f'pip install -e ".[{extra}]"'
    if alone:
        command += f" && pip install --no-deps {alone}"
    return f"{command} (in the checkout of agentgym-jax)"
