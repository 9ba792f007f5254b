"""A door environment whose setup always fails."""

import dataclasses

from agentgym_envs.base.environment import SetupError
from tests.envs.base import door


def _prepare():
    raise SetupError("the door needs hinges. Install them first.")


def make_served_environment():
    return dataclasses.replace(door.make_served_environment(), prepare=_prepare)
