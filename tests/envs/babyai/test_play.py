"""BabyAI: actions, rewards and errors."""

import numpy as np
import pytest

from agentgym_envs.babyai.environment import BabyAIEnvironment
from agentgym_envs.babyai.paths import find_paths
from agentgym_envs.babyai.scene import describe
from agentgym_envs.babyai.scoring import START, CompatScoring, Scoring
from agentgym_envs.babyai.view import look
from agentgym_envs.base.environment import EnvironmentFault
from agentgym_envs.base.protocol import ErrorKind
from tests.envs.babyai.parts import started, view_of


def search_for(
    facing: int, obstacles: frozenset, target: tuple[int, int]
) -> tuple[int, ...] | None:
    """Returns AgentGym's moves from the agent to one target, found by a breadth-first search."""
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
def test_one_search_for_all_objects_equals_a_search_per_object(facing):
    random = np.random.default_rng(facing)
    for count in (1, 3, 6, 10, 14):
        cells = [(int(a), int(r)) for a, r in random.integers([0, -3], [7, 4], (count, 2))]
        obstacles = frozenset(cells) - {(0, 0)}
        found = find_paths(facing, obstacles, obstacles, frozenset()).facing
        for target in obstacles:
            assert found.get(target) == search_for(facing, obstacles, target)


def test_only_reachable_objects_are_numbered_in_actions():
    wall = [("grey wall", ahead, right) for ahead, right in ((1, -2), (2, -1), (3, -2), (2, -3))]
    scene = describe(view_of(("red ball", 2, -2), ("red ball", 4, 2), *wall), 3, None)
    assert "There is a red ball 2 4 steps in front of you" in scene.description
    assert "go to red ball 1" in scene.actions and "go to red ball 2" not in scene.actions
    assert scene.actions["pickup red ball 1"][-1] == 3


def test_an_action_on_an_unreachable_object_is_rejected():
    wall = [("grey wall", ahead, right) for ahead, right in ((1, -2), (2, -1), (3, -2), (2, -3))]
    scene = describe(view_of(("red ball", 2, -2), *wall), 3, None)
    for action in ("pickup red ball 1", "go to red ball 1"):
        assert action not in scene.actions
        assert scene.refusals[action] == f"You cannot {action}, as there is no path leading to it."


def test_the_rejection_for_an_unreachable_door_differs_in_compat_mode():
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
def test_an_unavailable_action_is_answered_with_the_reason(action, answer):
    environment = started("GoToObjS6", 0)
    before = environment.state()
    result = environment.step(action)
    assert result.observation.startswith(answer)
    assert (result.reward, result.done) == (0, False)
    assert environment.state() == before


def test_moving_to_a_faced_object_does_not_change_the_state():
    environment = started("OpenRedDoor", 0)
    environment.step("go to red closed door 1")
    again = environment.step("go to red closed door 1")
    assert again.observation.startswith("No change in state.\nAvailable actions: ")
    assert "go to red closed door 1" not in environment.valid_actions()


def test_an_action_stops_when_a_move_does_not_change_the_view():
    # In the middle of a large empty floor, a step does not change the view.
    environment = started("OneRoomS20", 1)
    episode = environment._episode
    world = episode.world
    world.grid.grid = [t if t is not None and t.type == "wall" else None for t in world.grid.grid]
    world.agent_pos, world.agent_dir = (3, 10), 0
    episode.view = look(world)
    environment._move(episode, (2, 2, 2))
    assert environment.state()["position"] == [4, 10]


def test_observe_repeats_the_goal_and_the_last_observation():
    environment = started("OpenRedDoor", 0)
    answer = environment.step("dance")
    assert (
        environment.observe().observation == "Your goal: open the red door\n" + answer.observation
    )


@pytest.mark.parametrize("scoring", [Scoring(), CompatScoring()], ids=["own", "compat"])
def test_an_early_success_has_minigrids_reward_in_both_modes(scoring):
    result = started("GoToObjS6", 0, scoring).step("go to blue key 1")
    assert result.done and result.observation.count(" The task is completed.") == 1
    assert result.reward == result.score == pytest.approx(1 - 0.9 * 2 / 16)


def spun(scoring, moves: int) -> BabyAIEnvironment:
    """Returns a GoToRedBallNoDists environment after `moves` useless moves, of the 64 allowed."""
    environment = started("GoToRedBallNoDists", 0, scoring)
    for i in range(moves):
        environment.step("turn left" if i % 2 else "turn right")
    return environment


def finish(environment: BabyAIEnvironment):
    """Plays the expert until a reward or the end of the episode; returns the last result."""
    for _ in range(20):
        result = environment.step(environment.expert_action())
        if result.reward or result.done:
            return result
    raise AssertionError("the expert earned nothing in 20 turns")


def test_a_late_success_ends_the_episode_and_is_rewarded_once():
    environment = spun(Scoring(), 40)
    result = finish(environment)
    assert result.done and 0 < result.reward <= 0.5
    assert result.score == result.reward
    with pytest.raises(EnvironmentFault) as fault:
        environment.step("dance")
    assert fault.value.kind is ErrorKind.FINISHED


def test_compat_mode_continues_after_a_late_success_and_rewards_invalid_actions():
    environment = spun(CompatScoring(), 40)
    result = finish(environment)
    assert not result.done and 0 < result.reward <= 0.5
    assert "The task is completed." in result.observation
    scores = [environment.step("dance").score for _ in range(3)]
    assert scores == pytest.approx([result.reward * n for n in (2, 3, 4)])


def test_going_through_a_goal_door_is_rewarded_except_in_compat_mode():
    action = "toggle and go through red closed door 1"
    own = started("OpenRedDoor", 0).step(action)
    assert own.done and own.reward > 0.9
    compat = started("OpenRedDoor", 0, CompatScoring()).step(action)
    assert not compat.done and compat.reward == 0


def test_a_failure_ends_the_episode_without_a_reward_and_says_so():
    # A PickupDistDebug episode fails if the agent picks up any thing but the goal.
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


def test_the_limit_of_moves_ends_the_episode_without_a_reward():
    environment = spun(Scoring(), 63)
    assert environment.state()["moves"] == 63 == environment.state()["max_moves"] - 1
    result = environment.step("turn left")
    assert result.done and result.reward == 0
    assert "\n The limit of moves is reached.\n" in result.observation
    assert not spun(CompatScoring(), 80).step("turn left").done


def test_an_invalid_action_earns_no_reward():
    verdict = Scoring().after_moves(START, 0.0, terminated=False, truncated=False)
    assert Scoring().after_nothing(verdict) == START


def test_a_negative_index_is_an_unknown_task():
    with pytest.raises(EnvironmentFault, match="data_idx was -1") as fault:
        BabyAIEnvironment().reset(-1)
    assert fault.value.kind is ErrorKind.UNKNOWN_TASK
    assert fault.value.compat_message.endswith("actual value: -1")
