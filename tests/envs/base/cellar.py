"""The door environment with a path prefix.

The task field has another name than in `door`, and `/create` has a body.
"""

import dataclasses

from agentgym_envs.base.served import IdBody
from tests.envs.base import door


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
