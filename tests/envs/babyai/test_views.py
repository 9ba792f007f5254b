"""BabyAI: views as text and as a picture."""

import base64
import itertools
import struct
import zlib

import numpy as np
import pytest
from minigrid.core.constants import IDX_TO_COLOR, OBJECT_TO_IDX
from minigrid.minigrid_env import MiniGridEnv

from agentgym_envs.babyai import levels
from agentgym_envs.babyai.environment import BabyAIEnvironment
from agentgym_envs.babyai.render import png
from agentgym_envs.babyai.scene import describe
from agentgym_envs.babyai.scoring import CompatScoring
from agentgym_envs.babyai.view import AGENT_CELL, EMPTY, SIZE, UNSEEN, look
from agentgym_envs.babyai.world import make_world
from tests.envs.babyai.parts import started, view_of


def image_names(world) -> tuple[str, ...]:
    """Returns the cells of minigrid's own image of a view, under the names of this package."""
    types = {index: name for name, index in OBJECT_TO_IDX.items()}
    image = MiniGridEnv.gen_obs(world)["image"]
    names = []
    for row, column in itertools.product(range(SIZE), repeat=2):
        kind, color, state = (int(v) for v in image[column, row])
        name = {"unseen": UNSEEN, "empty": EMPTY}.get(types[kind])
        if name is None:
            door = ("open ", "closed ", "locked ")[state] if types[kind] == "door" else ""
            name = f"{IDX_TO_COLOR[color]} {door}{types[kind]}"
        names.append(name)
    return tuple(names)


@pytest.mark.parametrize("level", range(0, 40, 3))
def test_a_view_equals_minigrids_image(level):
    world, _ = make_world(levels.task(level))
    moves = np.random.default_rng(level)
    for _ in range(60):
        world.step(int(moves.choice([0, 1, 2, 2, 2, 3, 4, 5])))
        assert look(world).cells == image_names(world)


def test_the_first_view_of_a_carrying_level_shows_the_object_on_the_floor():
    # As in AgentGym, the first text describes the image that minigrid draws before the agent gets
    # the object.
    world, view = make_world(levels.task(levels.data_idx("PutNextS7N4Carrying", 0)))
    assert world.carrying is not None
    assert view.cells[AGENT_CELL] == EMPTY


def test_the_observations_of_a_small_world_are_the_expected_ones():
    environment = BabyAIEnvironment()
    first = environment.reset(levels.data_idx("GoToObjS6", 0))
    assert first.observation == (
        "Your goal: go to the blue key\n"
        "In front of you in this room, you can see several objects: "
        "There is a blue key 1 1 steps in front of you and 1 steps to your right.  "
        "The room has walls around you. You are facing a wall 2 steps away. "
        "You are not carrying anything.\n"
        'Available actions: ["turn left", "turn right", "move forward", "pickup blue key 1", '
        '"go to blue key 1", "check available actions"]'
    )
    assert (first.reward, first.score, first.done) == (0, 0, False)
    second = environment.step(" Go to BLUE key 1 ")
    assert second.observation == (
        "In front of you in this room, you can see several objects: "
        "There is a blue key 1 right in front of you 1 steps away.  "
        "The room has walls around you. You are facing a wall 2 steps away. "
        "You are not carrying anything.\n The task is completed.\n"
        'Available actions: ["turn left", "turn right", "move forward", "pickup blue key 1", '
        '"go to blue key 1", "check available actions"]'
    )
    assert second.done


def test_an_action_ends_with_the_move_that_completes_the_goal():
    # The episode ends next to the key, before the action would pick up the key.
    environment = started("GoToObjS6", 0)
    assert environment.step("pickup blue key 1").done
    assert environment.state()["carrying"] is None
    compat = started("GoToObjS6", 0, CompatScoring())
    compat.step("pickup blue key 1")
    assert compat.state()["carrying"] == "blue key"


def test_the_state_lists_the_cells_that_the_latest_action_entered():
    environment = started("GoToObjS6", 0)
    before = environment.state()["position"]
    environment.step("pickup blue key 1")
    state = environment.state()
    way = [before, *state["walked"]]
    assert len(way) > 1 and way[-1] == state["position"]
    for (x, y), (next_x, next_y) in itertools.pairwise(way):
        assert abs(x - next_x) + abs(y - next_y) == 1
    moving = started("GoToObjS6", 1)
    walks = [
        moving.step(action) and moving.state()["walked"] for action in ("move forward", "turn left")
    ]
    assert len(walks[0]) == 1 and walks[1] == []


def test_objects_are_listed_by_distance_and_then_by_row():
    view = view_of(("red ball", 1, 2), ("red ball", 2, -1), ("blue key", 3, 0), ("red box", 1, 0))
    text = describe(view, 0, None).description
    order = [
        "red box 1 right in front of you 1 steps away",
        "blue key 1 right in front of you 3 steps away",
        "red ball 1 2 steps in front of you and 1 steps to your left",
        "red ball 2 1 steps in front of you and 2 steps to your right",
    ]
    found = [text.index(phrase) for phrase in order]
    assert found == sorted(found)
    assert "You are facing a box 1 steps away." in text


def test_the_faced_wall_is_described_behind_a_ball():
    ball = describe(view_of(("red ball", 1, 0), ("grey wall", 3, 0)), 0, None)
    assert "You are facing a wall 3 steps away." in ball.description
    assert "move forward" in ball.actions
    door = describe(view_of(("red closed door", 1, 0)), 0, None)
    assert "facing" not in door.description
    assert "move forward" in door.actions


def test_an_empty_floor_is_described_as_no_objects_in_sight():
    scene = describe(view_of(), 2, "red key")
    assert scene.description == (
        "You cannot see any objects within sight.The room has walls around you. "
        "You are carrying a red key."
    )
    assert list(scene.actions) == [
        "turn left",
        "turn right",
        "move forward",
        "drop",
        "check available actions",
    ]


def test_a_picture_contains_the_pixels_of_the_grid():
    environment = started("OpenRedDoor", 0)
    prefix, _, data = environment.render().partition(",")
    file = base64.b64decode(data)
    assert prefix == "data:image/png;base64" and file[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", file[16:24])
    assert (width, height) == (288, 160)
    length = struct.unpack(">I", file[33:37])[0]
    assert file[37:41] == b"IDAT"
    rows = np.frombuffer(zlib.decompress(file[41 : 41 + length]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()  # the filter byte of every row is 0
    frame = environment._episode.world.get_frame()
    assert np.array_equal(rows[:, 1:].reshape(height, width, 3), frame)


def test_a_picture_needs_rgb_bytes():
    with pytest.raises(ValueError, match=r"got float64 \(2, 2, 3\)"):
        png(np.zeros((2, 2, 3)))


LETTERS = {"ball": "A", "box": "B", "key": "K", "closed door": "D", "locked door": "L"}


@pytest.mark.parametrize("index", [93, 103, 114])  # scenes: doors, locked doors, several rooms
def test_the_state_names_everything_that_minigrid_draws(index):
    environment = BabyAIEnvironment()
    done = environment.reset(index).done
    kinds = set()
    for _ in range(12):
        state = environment.state()
        drawn = {}
        for x, y, name in state["things"]:
            colour, _, kind = name.partition(" ")
            kinds.add(kind)
            drawn[x, y] = "__" if kind == "open door" else LETTERS[kind] + colour[0].upper()
        for y, line in enumerate(state["grid"]):
            for x in range(len(line) // 2):
                letters = line[2 * x : 2 * x + 2]
                if [x, y] != state["position"]:  # the agent hides an open door in its cell
                    assert drawn.get((x, y), "  ") == ("  " if letters == "WG" else letters)
        if done:
            break
        done = environment.step(environment.expert_action()).done
    assert {93: "open door", 103: "locked door", 114: "box"}[index] in kinds
