"""The door behind a path prefix, with another name for the task and a body for `/create`."""

import dataclasses

import door

from agentgym_envs.base.kind import IdBody


class GameBody(IdBody):
    game: int


def make_kind():
    return dataclasses.replace(
        door.make_kind(),
        path_prefix="/cellar",
        task_field="game",
        reset_body=GameBody,
        create_body=IdBody,
    )
