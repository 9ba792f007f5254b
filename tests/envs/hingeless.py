"""A door environment whose setup always fails."""

import dataclasses

import door

from agentgym_envs.base.environment import SetupError


def _prepare():
    raise SetupError("the door needs hinges. Install them first.")


def make_served_environment():
    return dataclasses.replace(door.make_served_environment(), prepare=_prepare)
