"""Config of a test run of two steps on a server in OpenEnv's protocol; its option is the port."""

from configs import common
from tests.integration import tiny


def get_config(arg):
    """Returns the config; `arg` is the port of the server."""
    c = tiny.get_config()
    c.total_steps = 2
    tasks = dict(kind="residues", start=0, stop=64, modulus=1, groups={"echo": 0})
    held_out = tasks | dict(start=100, stop=104)
    url = f"http://127.0.0.1:{arg}"
    entry = common.environment(url=url, protocol="openenv", train=tasks, eval=held_out)
    del c.environments.babyai
    c.environments.echo = entry
    c.horizon = dict(kind="fixed", turns=2)
    return c
