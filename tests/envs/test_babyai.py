"""BabyAI: worlds, views, texts, actions, scoring, and the server of it."""

import base64
import hashlib
import itertools
import json
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from fastapi.testclient import TestClient
from minigrid.core.constants import IDX_TO_COLOR, OBJECT_TO_IDX
from minigrid.minigrid_env import MiniGridEnv

from agentgym_envs.babyai import levels
from agentgym_envs.babyai.environment import BabyAIEnvironment
from agentgym_envs.babyai.kind import make_kind, tasks
from agentgym_envs.babyai.paths import find_paths
from agentgym_envs.babyai.render import png
from agentgym_envs.babyai.scene import describe
from agentgym_envs.babyai.scoring import START, CompatScoring, OwnScoring
from agentgym_envs.babyai.view import AGENT_CELL, EMPTY, SIZE, UNSEEN, View, look
from agentgym_envs.babyai.world import make_world
from agentgym_envs.base import manifest
from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.base.server import create_app

# First observations of the 40 levels with seed 0. A change means that other worlds or other texts
# hide behind the published item ids: results before and after are not comparable.
FIRST_OBSERVATIONS = "1dc4977dd8550e6e00d79491b80a594a840074ff020d121dc60a32f140451f56"
MANIFEST = "f9403487ed7a0e8b88823caf817f60124785c14ce8b10e031929602c225f9dc0"


def started(level: str, seed: int, scoring=None) -> BabyAIEnvironment:
    environment = BabyAIEnvironment(scoring)
    environment.reset(levels.data_idx(level, seed))
    return environment


# --- tasks


def test_an_index_counts_levels_first_and_seeds_second():
    assert levels.task(0).level == "BabyAI-GoToRedBallGrey-v0"
    assert levels.task(57) == levels.Task(57, "BabyAI-UnblockPickup-v0", "Pickup", 1, "train")
    assert levels.task(3599).level == "BabyAI-BossLevelNoUnlock-v0"
    assert levels.task(3599).seed == 89


@pytest.mark.parametrize("index", [0, 39, 40, 12345, levels.NUM_TASKS - 1])
def test_level_and_seed_lead_back_to_the_index(index):
    task = levels.task(index)
    assert levels.data_idx(task.level, task.seed) == index


def test_a_misspelt_level_is_refused_with_the_list():
    with pytest.raises(ValueError, match="no level 'GoToMars' among the 40.*GoToObjS6"):
        levels.data_idx("GoToMars", 0)


def test_the_families_hold_the_sub_tasks_of_the_paper():
    # Five test items a level give 55 GoTo items in arXiv:2509.08755: eleven levels.
    assert levels.FAMILIES.count("GoTo") == 11
    for family in ("ActionObjDoor", "FindObjS7", "OneRoomS20", "SynthLoc"):
        assert levels.FAMILIES.count(family) == 1


def test_one_listed_task_in_ten_is_for_testing_and_each_level_has_as_many():
    listed = tasks()
    manifest.check(listed)
    test = [task for task in listed if task["split"] == "test"]
    assert len(listed) == 4000 and len(test) == 400
    assert {task["seed"] % 10 for task in test} == {9}
    assert all(sum(t["level"] == level for t in test) == 10 for level in levels.LEVELS)


def test_the_manifest_is_the_one_results_were_measured_with():
    assert make_kind().spec.manifest_sha256 == MANIFEST


def test_the_worlds_behind_the_ids_have_not_drifted():
    environment = BabyAIEnvironment()
    texts = [environment.reset(index).observation for index in range(len(levels.LEVELS))]
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    assert digest == FIRST_OBSERVATIONS, "minigrid, numpy or a text changed"


def test_a_task_is_the_same_world_whatever_was_played_before():
    fresh = BabyAIEnvironment().reset(38)
    used = started("SynthSeq", 5)
    for action in used.valid_actions()[:3]:
        used.step(action)
    assert used.reset(38) == fresh == used.reset(38)


def test_nothing_is_printed_by_the_import_or_by_rejected_worlds():
    # SynthLoc with seed 0 .. 7 rejects worlds, which minigrid alone announces on stdout.
    code = (
        "from agentgym_envs.babyai.environment import BabyAIEnvironment as B\n"
        "e = B()\n"
        "[e.reset(seed * 40 + level) for seed in range(8) for level in (16, 35)]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


# --- what is seen


def image_names(world) -> tuple[str, ...]:
    """Minigrid's own image of a view, in the words of ours."""
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
def test_a_view_is_minigrids_image(level):
    world, _ = make_world(levels.task(level))
    moves = np.random.default_rng(level)
    for _ in range(60):
        world.step(int(moves.choice([0, 1, 2, 2, 2, 3, 4, 5])))
        assert look(world).cells == image_names(world)


def test_in_a_carrying_level_the_first_view_still_shows_what_is_carried_on_the_floor():
    # AgentGym tells minigrid's first image, drawn before the thing was put into the hands.
    world, view = make_world(levels.task(levels.data_idx("PutNextS7N4Carrying", 0)))
    assert world.carrying is not None
    assert view.cells[AGENT_CELL] == EMPTY


def test_the_texts_of_a_small_world():
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
    # Walking up to the key is all that was asked for: it is not picked up any more.
    environment = started("GoToObjS6", 0)
    assert environment.step("pickup blue key 1").done
    assert environment.state()["carrying"] is None
    compat = started("GoToObjS6", 0, CompatScoring())
    compat.step("pickup blue key 1")
    assert compat.state()["carrying"] == "blue key"


def view_of(*things: tuple[str, int, int]) -> View:
    """A view of an empty floor with (name, ahead, right) on it."""
    cells = [EMPTY] * (SIZE * SIZE)
    for name, ahead, right in things:
        cells[(SIZE - 1 - ahead) * SIZE + right + SIZE // 2] = name
    return View(tuple(cells))


def test_things_are_listed_nearest_first_and_far_rows_first_among_equals():
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


def test_a_wall_behind_a_ball_is_what_the_agent_faces_and_a_door_is_no_barrier():
    ball = describe(view_of(("red ball", 1, 0), ("grey wall", 3, 0)), 0, None)
    assert "You are facing a wall 3 steps away." in ball.description
    assert "move forward" in ball.actions
    door = describe(view_of(("red closed door", 1, 0)), 0, None)
    assert "facing" not in door.description
    assert "move forward" in door.actions


def test_nothing_but_floor_is_nothing_in_sight():
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


# --- actions


def search_for(
    facing: int, obstacles: frozenset, target: tuple[int, int]
) -> tuple[int, ...] | None:
    """AgentGym's search as its results show it, one search for one target, in plain words."""
    rear, last = (-1, -1, 0, 0)[facing], (3, 4, 4, 3)[facing]
    steps = ((1, 0), (0, 1), (-1, 0), (0, -1))
    queue, taken, came_from = [(0, 0, 0)], set(), {}
    while queue:
        ahead, right, turn = state = queue.pop(0)
        taken.add(state)
        if (ahead + steps[turn][0], right + steps[turn][1]) == target:
            moves = []
            while state != (0, 0, 0):
                state, move = came_from[state]
                moves.append(move)
            return tuple(reversed(moves))
        forward = (ahead + steps[turn][0], right + steps[turn][1], turn)
        for move, following in (
            (2, forward),
            (0, (ahead, right, (turn - 1) % 4)),
            (1, (ahead, right, (turn + 1) % 4)),
        ):
            inside = rear <= following[0] <= 6 and -3 <= following[1] <= last
            if inside and following not in taken and following[:2] not in obstacles:
                queue.append(following)
                came_from[following] = (state, move)
    return None


@pytest.mark.parametrize("facing", range(4))
def test_one_search_finds_what_a_search_for_each_thing_finds(facing):
    random = np.random.default_rng(facing)
    for count in (1, 3, 6, 10, 14):
        cells = [(int(a), int(r)) for a, r in random.integers([0, -3], [7, 4], (count, 2))]
        obstacles = frozenset(cells) - {(0, 0)}
        found = find_paths(facing, obstacles, obstacles, frozenset()).facing
        for target in obstacles:
            assert found.get(target) == search_for(facing, obstacles, target)


def test_an_action_on_a_thing_counts_only_the_reachable_ones():
    wall = [("grey wall", ahead, right) for ahead, right in ((1, -2), (2, -1), (3, -2), (2, -3))]
    scene = describe(view_of(("red ball", 2, -2), ("red ball", 4, 2), *wall), 3, None)
    assert "There is a red ball 2 4 steps in front of you" in scene.description
    assert "go to red ball 1" in scene.actions and "go to red ball 2" not in scene.actions
    assert scene.actions["pickup red ball 1"][-1] == 3


def test_a_walled_in_thing_is_refused_because_no_path_leads_to_it():
    wall = [("grey wall", ahead, right) for ahead, right in ((1, -2), (2, -1), (3, -2), (2, -3))]
    scene = describe(view_of(("red ball", 2, -2), *wall), 3, None)
    for action in ("pickup red ball 1", "go to red ball 1"):
        assert action not in scene.actions
        assert scene.refusals[action] == f"You cannot {action}, as there is no path leading to it."


def test_an_unreachable_door_is_refused_by_its_number_and_upstream_by_its_whole_table():
    box_in = [("grey wall", a, r) for a, r in ((3, -1), (2, -2), (4, -2), (3, -3))]
    scene = describe(
        view_of(("blue closed door", 1, 1), ("red closed door", 3, -2), *box_in), 3, None
    )
    action = "toggle and go through red closed door 1"
    assert scene.refusals[action] == f"You cannot {action}, as there is no path leading to it."
    assert scene.compat_refusals[action] == (
        "You cannot toggle and go through red closed door "
        "{'blue closed door': 1, 'red closed door': 1}, as there is no path leading to it."
    )


@pytest.mark.parametrize(
    ("carrying", "reason"),
    [
        (None, "you are not carrying a key."),
        ("red ball", "you are not carrying a key."),
        ("red key", "the color of the key you are carrying does not match the color of door."),
    ],
)
def test_a_locked_door_needs_the_key_of_its_color(carrying, reason):
    view = view_of(("blue locked door", 1, 0))
    action = "toggle and go through blue locked door 1"
    refused = describe(view, 0, carrying)
    assert action not in refused.actions and "toggle" not in refused.actions
    assert refused.refusals[action] == f"You cannot {action}, as {reason}"
    allowed = describe(view, 0, "blue key")
    assert allowed.actions[action] == (5, 2) and allowed.actions["toggle"] == (5,)


@pytest.mark.parametrize(
    ("action", "answer"),
    [
        ("dance", "The action is not recognized. Please check valid actions."),
        ("", "No change in state."),
        ("drop", "You cannot drop the object, as you are not carrying anything."),
        ("please check", "You can take the following actions: turn left, turn right, "),
    ],
)
def test_an_action_that_is_not_on_offer_is_answered_with_the_reason(action, answer):
    environment = started("GoToObjS6", 0)
    before = environment.state()
    result = environment.step(action)
    assert result.observation.startswith(answer)
    assert (result.reward, result.done) == (0, False)
    assert environment.state() == before


def test_going_to_what_is_already_faced_changes_nothing():
    environment = started("OpenRedDoor", 0)
    environment.step("go to red closed door 1")
    again = environment.step("go to red closed door 1")
    assert again.observation.startswith("No change in state.\nAvailable actions: ")
    assert "go to red closed door 1" not in environment.valid_actions()


def test_an_action_stops_when_its_next_move_shows_nothing_new():
    # In the middle of a large empty floor one step looks like the next.
    environment = started("OneRoomS20", 1)
    episode = environment._episode
    world = episode.world
    world.grid.grid = [t if t is not None and t.type == "wall" else None for t in world.grid.grid]
    world.agent_pos, world.agent_dir = (3, 10), 0
    episode.view = look(world)
    environment._move(episode, (2, 2, 2))
    assert environment.state()["position"] == [4, 10]


def test_what_was_seen_last_is_repeated_after_the_goal():
    environment = started("OpenRedDoor", 0)
    answer = environment.step("dance")
    assert (
        environment.observe().observation == "Your goal: open the red door\n" + answer.observation
    )


# --- scoring


@pytest.mark.parametrize("scoring", [OwnScoring(), CompatScoring()], ids=["own", "compat"])
def test_an_early_success_is_worth_minigrids_reward_in_both_modes(scoring):
    result = started("GoToObjS6", 0, scoring).step("go to blue key 1")
    assert result.done and result.observation.count(" The task is completed.") == 1
    assert result.reward == result.score == pytest.approx(1 - 0.9 * 2 / 16)


def spun(scoring, moves: int) -> BabyAIEnvironment:
    """A GoToRedBallNoDists world in which `moves` of 64 moves were wasted."""
    environment = started("GoToRedBallNoDists", 0, scoring)
    for i in range(moves):
        environment.step("turn left" if i % 2 else "turn right")
    return environment


def finish(environment: BabyAIEnvironment):
    """Plays the expert until something is paid."""
    for _ in range(20):
        result = environment.step(environment.expert_action())
        if result.reward or result.done:
            return result
    raise AssertionError("the expert earned nothing in 20 turns")


def test_a_late_success_ends_the_episode_and_is_paid_once():
    environment = spun(OwnScoring(), 40)
    result = finish(environment)
    assert result.done and 0 < result.reward <= 0.5
    assert result.score == result.reward
    with pytest.raises(EnvironmentFault) as fault:
        environment.step("dance")
    assert fault.value.kind is ErrorKind.FINISHED


def test_upstream_undoes_a_late_success_and_pays_junk_again_and_again():
    environment = spun(CompatScoring(), 40)
    result = finish(environment)
    assert not result.done and 0 < result.reward <= 0.5
    assert "The task is completed." in result.observation
    scores = [environment.step("dance").score for _ in range(3)]
    assert scores == pytest.approx([result.reward * n for n in (2, 3, 4)])


def test_opening_a_wanted_door_by_going_through_it_is_paid_but_not_upstream():
    action = "toggle and go through red closed door 1"
    own = started("OpenRedDoor", 0).step(action)
    assert own.done and own.reward > 0.9
    compat = started("OpenRedDoor", 0, CompatScoring()).step(action)
    assert not compat.done and compat.reward == 0


def test_a_failure_ends_the_episode_without_reward_and_says_so():
    # PickupDistDebug fails when a thing is picked up that the goal does not name.
    for seed in range(20):
        environment = started("PickupDistDebug", seed)
        for action in environment.valid_actions():
            if not action.startswith("pickup"):
                continue
            result = started("PickupDistDebug", seed).step(action)
            if result.done and result.reward == 0:
                assert "\n The task has failed.\n" in result.observation
                assert result.score == 0
                compat = started("PickupDistDebug", seed, CompatScoring()).step(action)
                assert not compat.done
                return
    raise AssertionError("no seed offers a wrong thing")


def test_the_limit_of_moves_ends_the_episode_without_reward():
    environment = spun(OwnScoring(), 63)
    assert environment.state()["moves"] == 63 == environment.state()["max_moves"] - 1
    result = environment.step("turn left")
    assert result.done and result.reward == 0
    assert "\n The limit of moves is reached.\n" in result.observation
    assert not spun(CompatScoring(), 80).step("turn left").done


def test_junk_after_a_rewardless_move_earns_nothing():
    verdict = OwnScoring().after_moves(START, 0.0, terminated=False, truncated=False)
    assert OwnScoring().after_nothing(verdict) == START


# --- errors


@pytest.mark.parametrize("call", ["step", "expert_action", "valid_actions", "render"])
def test_before_the_first_reset_there_is_nothing_to_play(call):
    arguments = ("turn left",) if call == "step" else ()
    with pytest.raises(EnvironmentFault) as fault:
        getattr(BabyAIEnvironment(), call)(*arguments)
    assert fault.value.kind is ErrorKind.NOT_RESET


def test_a_negative_index_is_no_task():
    with pytest.raises(EnvironmentFault, match="data_idx was -1") as fault:
        BabyAIEnvironment().reset(-1)
    assert fault.value.kind is ErrorKind.UNKNOWN_TASK
    assert fault.value.compat_message.endswith("actual value: -1")


# --- pictures


def test_a_picture_holds_the_pixels_of_the_grid():
    environment = started("OpenRedDoor", 0)
    prefix, _, data = environment.render().partition(",")
    file = base64.b64decode(data)
    assert prefix == "data:image/png;base64" and file[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", file[16:24])
    assert (width, height) == (288, 160)
    length = struct.unpack(">I", file[33:37])[0]
    assert file[37:41] == b"IDAT"
    rows = np.frombuffer(zlib.decompress(file[41 : 41 + length]), np.uint8).reshape(height, -1)
    assert not rows[:, 0].any()  # no filter
    frame = environment._episode.world.get_frame()
    assert np.array_equal(rows[:, 1:].reshape(height, width, 3), frame)


def test_a_picture_needs_rgb_bytes():
    with pytest.raises(ValueError, match=r"got float64 \(2, 2, 3\)"):
        png(np.zeros((2, 2, 3)))


# --- served


@pytest.fixture(params=[False, True], ids=["own", "compat"])
def client(request):
    app = create_app(
        make_kind(),
        compat=request.param,
        capacity=8,
        idle_seconds=60,
        max_body_bytes=10_000,
        step_timeout_s=5,
    )
    with TestClient(app) as client:
        yield client


def test_a_session_has_agentgyms_routes_and_keys(client):
    assert client.get("/").json() == "This is environment BabyAI."
    session = client.post("/create").json()
    assert session == {"id": 0}
    early = client.get("/observation", params=session).json()
    assert early == {
        "observation": "Environment not initialized",
        "reward": 0,
        "score": 0,
        "done": False,
        "deleted": False,
    }
    first = client.post("/reset", json={**session, "data_idx": 3}).json()
    assert set(first) == {"observation", "reward", "score", "deleted", "done"}
    assert client.get("/observation", params=session).json() == first
    step = client.post("/step", json={**session, "action": "turn left"}).json()
    assert set(step) == {"observation", "reward", "score", "done"}
    assert client.post("/render", json=session).json().startswith("data:image/png;base64,")
    assert client.get("/expert_action", params=session).json()["action"] in step["observation"]
    assert client.post("/close", json=session).json() is True


def test_the_spec_tells_an_agent_the_words_the_server_understands(client):
    spec = client.get("/spec").json()
    assert spec["name"] == "babyai" and spec["num_tasks"] == 40 * 2**20
    assert "pickup <object> <number>" in spec["instructions"]
    assert "pick up <" not in spec["instructions"]
    assert "Thought:" in spec["instructions"] and "\nAction:" in spec["instructions"]
