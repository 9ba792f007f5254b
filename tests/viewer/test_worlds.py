import json

import pytest

from agentgym_jax.client.in_process import in_process_servers
from agentgym_jax.viewer.worlds import (
    WITH_BROWSER,
    ReplayError,
    chosen_for_replay,
    replay,
    worlds_of,
)

TASK = 13  # OpenDoorLoc


@pytest.fixture(scope="module")
def transport():
    with in_process_servers(["babyai"]) as transports:
        yield transports["babyai"]


def call(transport, method, target, body=None):
    return json.loads(transport.exchange(method, target, body, None)[1])


@pytest.fixture
def played(transport, make_record):
    """Returns the record of an episode with fixed actions, of which one turn has a parse error."""
    session = call(transport, "POST", "/create", {})["id"]
    call(transport, "POST", "/reset", {"id": session, "data_idx": TASK})
    turns = []
    for action in ("turn left", None, "turn left", "turn right"):
        answer = {"observation": "", "reward": 0.0}
        if action:
            answer = call(transport, "POST", "/step", {"id": session, "action": action})
        turns.append((action, answer["observation"], answer["reward"]))
    return make_record(item=f"babyai_{TASK}", turns=turns)


def test_a_replay_has_the_state_before_and_after_every_turn(transport, played):
    states = replay(transport, played)
    facing = [state["facing"] for state in states]
    assert len(states) == 5 and facing[1] == facing[2] and facing[2] != facing[3]
    assert facing[4] == facing[1]
    assert all(len(state["grid"]) == len(states[0]["grid"]) for state in states)


def test_a_replay_whose_answers_differ_is_refused(transport, played):
    played["turns"][2]["observation"] = "something else"
    with pytest.raises(ReplayError, match="differ from the record"):
        replay(transport, played)


def test_a_maze_is_replayed_through_its_prefixed_routes(make_record):
    """Checks a server whose routes have a prefix and whose task field has another name."""
    seen = ["1, 2. There are walls above you, below you.", "1, 1. There are walls to your left,"]
    seen[1] += " above you, below you."
    says = "The goal is at position 8, 6. Your current position is at position "
    turns = [("move right", says + seen[0], 0.0), ("move left", says + seen[1], 0.0)]
    with in_process_servers(["maze"]) as transports:
        states = replay(transports["maze"], make_record(item="maze_0", turns=turns))
    assert [state["position"] for state in states] == [[1, 1], [1, 2], [1, 1]]
    assert all(state["grid"] for state in states)


def test_a_missing_task_cannot_be_replayed(transport, make_record):
    with pytest.raises(ReplayError, match="99999999"):
        replay(transport, make_record(item="babyai_99999999999", turns=[]))


def test_a_replay_leaves_no_session_behind(transport, played):
    played["turns"][2]["observation"] = "something else"
    before = call(transport, "GET", "/health")["sessions"]
    with pytest.raises(ReplayError):
        replay(transport, played)
    assert call(transport, "GET", "/health")["sessions"] == before


def test_only_tasks_of_a_served_environment_are_replayed(transport, make_record):
    servers = {"babyai": transport}
    assert len(worlds_of(make_record(item="babyai_3", turns=[]), servers)) == 1
    assert worlds_of(make_record(item="textcraft_3", turns=[]), servers) is None
    assert worlds_of(make_record(item="babyai_x", turns=[]), servers) is None


def test_a_replay_names_things_that_look_alike_in_its_grid(transport, make_record):
    (state,) = replay(transport, make_record(item="babyai_109", turns=[]))
    assert state["grid"][7][24:26] == state["grid"][12][16:18] == "DG"
    assert [12, 7, "green closed door"] in state["things"]
    assert [8, 12, "grey closed door"] in state["things"]


def rows(count, item="babyai_{}", samples=1):
    return [
        {
            "item": item.format(i // samples),
            "environment": "babyai",
            "number": i,
            "sample": i % samples,
        }
        for i in range(count)
    ]


def test_replayed_episodes_are_spread_over_steps_and_groups():
    files = [rows(8, f"babyai_{step}{{}}", samples=4) for step in range(10)]
    chosen = chosen_for_replay(files, 10)
    assert len(chosen) == 10 and {file for file, _ in chosen} == set(range(10))
    assert all(files[file][row]["sample"] == 0 for file, row in chosen)


def test_half_of_the_replays_are_of_tasks_played_at_several_steps():
    files = [rows(20), rows(20), rows(400, "babyai_1000{}")]
    chosen = chosen_for_replay(files, 20)
    repeated = {row for file, row in chosen if file == 0} & {
        row for file, row in chosen if file == 1
    }
    assert len(chosen) == 20 and len(repeated) >= 5


def test_few_episodes_are_all_replayed_except_those_of_other_environments():
    other = [{"item": "chess_1", "environment": "chess", "number": 1, "sample": 0}]
    assert chosen_for_replay([rows(3), other], 100) == {(0, 0), (0, 1), (0, 2)}
    assert chosen_for_replay([rows(3)], 0) == set()


def test_web_episodes_are_only_replayed_on_request():
    row = {"number": 0, "sample": 0, "item": "webarena_0", "environment": "webarena"}
    files = [[row, row | {"environment": "babyai", "item": "babyai_0"}]]
    assert chosen_for_replay(files, 400) == {(0, 1)}
    assert chosen_for_replay(files, 400, WITH_BROWSER) == {(0, 0)}
    assert chosen_for_replay(files, 0, WITH_BROWSER) == set()
