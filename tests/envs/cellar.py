"""The door environment with a path prefix.

The task field has another name than in `door`, and `/create` has a body.
"""

import dataclasses

import door

from agentgym_envs.base.served import IdBody


class GameBody(IdBody):
    game: int


def make_served_environment():
    return dataclasses.replace(
        door.make_served_environment(),
        path_prefix="/cellar",
        task_field="game",
        reset_body=GameBody,
        create_body=IdBody,
    )
