"""A door that cannot be built on this machine."""

import dataclasses

import door

from agentgym_envs.base.environment import SetupError


def _prepare():
    raise SetupError("the door needs hinges. Install them first.")


def make_kind():
    return dataclasses.replace(door.make_kind(), prepare=_prepare)
