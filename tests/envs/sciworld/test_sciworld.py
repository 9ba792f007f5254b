"""ScienceWorld: tasks, episodes in one Java virtual machine, rules, expert and recorded traffic."""

import functools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys

import psutil
import pytest

from agentgym_envs.base.environment import EnvironmentFault, SetupError, SimulatorLost, StepResult
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.sciworld.environment import SciWorldEnvironment
from agentgym_envs.sciworld.expert import AMBIGUOUS, step_towards
from agentgym_envs.sciworld.jvm import Jvm, find_java
from agentgym_envs.sciworld.served import REFUSAL, make_served_environment, read_action
from agentgym_envs.sciworld.simulator import NOTHING_SAID, Simulator, shared_simulator
from agentgym_envs.sciworld.tasks import TABLE, all_tasks
from tests.envs.recordings import Replay
from tests.envs.sciworld.make_task_table import task_table
from tests.run_python import output_of
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SOURCE = pathlib.Path(__file__).parents[3] / "envs"
BOIL, FIND_ANIMAL, FIND_PLANT, PAINT = 0, 3836, 3537, 4168
# Actions that open a bee hive and a door, after which the bees fly about at random.
WALK = (
    "open door to hallway, go to hallway, open door to greenhouse, go to greenhouse, "
    "open bee hive, look around, wait1, look around, open door to outside, wait, look around, "
    "wait1, look around, open door, 0, look around"
).split(", ")

try:
    find_java(os.environ)
    JAVA_IS_MISSING = False
except SetupError:
    JAVA_IS_MISSING = True
needs_java = pytest.mark.skipif(JAVA_IS_MISSING, reason="ScienceWorld needs Java")

make_environment = SciWorldEnvironment
make_compat_environment = functools.partial(SciWorldEnvironment, is_compat=True)


def playing(data_idx, make=make_environment):
    environment = make()
    environment.reset(data_idx)
    return environment


def say(environment, *actions):
    """Performs the actions; returns the answer to the last one."""
    return [environment.step(action) for action in actions][-1]


def objects(environment):
    """Returns all objects of the world with their numbers.

    A new object, such as a flower, gets the next free number.
    """
    return shared_simulator().object_tree(environment.episode.world)


def play_alone(data_idx, actions):
    """Performs actions in a separate environment; returns the answers and the objects at the end."""
    environment = make_environment()
    answers = [environment.reset(data_idx), *map(environment.step, actions)]
    end = objects(environment)
    environment.close()
    return answers, end


def run_python(program, **changes):
    """Runs a program in another process; returns its standard output."""
    return output_of("-c", program, timeout=120, **{"PYTHONPATH": str(SOURCE)} | changes)


# Tasks


def test_indices_select_the_same_tasks_as_in_agentgym():
    tasks = all_tasks()
    assert len(tasks) == 4639
    assert len({task.task for task in tasks}) == 23
    for data_idx, name, variation in [
        (0, "boil", 0),
        (120, "use-thermometer", 0),
        (1435, "power-component-renewable-vs-nonrenewable-energy", 19),
        (2936, "find-living-thing", 0),
        (4629, "identify-life-stages-2", 0),
        (4638, "identify-life-stages-2", 9),
    ]:
        assert (tasks[data_idx].task, tasks[data_idx].variation) == (name, variation)


def test_a_server_answers_spec_and_tasks_without_java():
    program = (
        "from agentgym_envs.sciworld.served import make_served_environment\n"
        "served = make_served_environment()\n"
        "print(len(served.tasks()), served.spec.num_tasks)"
    )
    assert run_python(program, PATH="", JAVA_HOME="").split() == ["4639", "4639"]


@needs_java
def test_the_task_table_equals_that_of_the_simulator():
    made = json.loads(json.dumps(task_table(shared_simulator())))
    assert made == json.loads(TABLE.read_text())


# The Java virtual machine


def test_the_error_for_missing_java_names_the_package(tmp_path):
    with pytest.raises(SetupError, match="PATH has no java. Install a Java runtime"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(SetupError, match=f"JAVA_HOME is {tmp_path}, but there is no"):
        find_java({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})


def test_the_error_of_an_unusable_java_is_quoted(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho Unrecognized VM option 'hashCode=2'\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="found: Unrecognized VM option hashCode=2"):
        Jvm()


@needs_java
def test_the_first_output_of_java_is_skipped(monkeypatch):
    # Java prints this option to standard error
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dsome=option")
    Jvm().close()


@needs_java
def test_a_killed_java_machine_is_a_lost_simulator():
    simulator = Simulator()
    world = simulator.load("boil", 0)
    psutil.Process(simulator.process_id).kill()
    with pytest.raises(SimulatorLost, match="gone"):
        simulator.step(world, "look around")
    simulator.close()


@needs_java
def test_the_java_machine_ends_with_a_killed_process_and_leaves_no_files(tmp_path):
    program = (
        "import time\n"
        "from agentgym_envs.sciworld.simulator import Simulator\n"
        "print(Simulator().process_id, flush=True)\n"
        "time.sleep(60)"
    )
    python = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    machine = psutil.Process(int(python.stdout.readline()))
    assert not pathlib.Path(f"/tmp/hsperfdata_{machine.username()}/{machine.pid}").exists()
    python.send_signal(signal.SIGKILL)
    python.communicate()
    gone, _ = psutil.wait_procs([machine], timeout=PATIENCE_S)
    assert gone and list(tmp_path.iterdir()) == []


# Independence of the episodes that share a virtual machine


@needs_java
def test_queries_do_not_change_an_episode():
    asked = make_environment()
    answers = [asked.reset(FIND_PLANT)]
    for action in WALK:
        asked.state()
        if action == "wait1":
            asked.valid_actions()
            objects(asked)
        answers.append(asked.step(action))
    assert (answers, objects(asked)) == play_alone(FIND_PLANT, WALK)


@needs_java
def test_an_episode_continues_in_another_java_machine():
    environment = playing(FIND_PLANT)
    say(environment, *WALK[:8])
    program = (
        "import json, sys\n"
        "from agentgym_envs.sciworld.environment import SciWorldEnvironment\n"
        "environment = SciWorldEnvironment()\n"
        "environment.reset(4000)\n"
        f"environment.restore(json.loads('''{json.dumps(environment.snapshot())}'''))\n"
        f"texts = [environment.step(action).observation for action in {WALK[8:]!r}]\n"
        "print(json.dumps([texts, environment.state()]))"
    )
    texts, state = json.loads(run_python(program))
    assert texts == [environment.step(action).observation for action in WALK[8:]]
    assert state == environment.state()


@needs_java
def test_a_closed_episode_can_be_reset_and_its_memory_is_released():
    classes = shared_simulator()._jvm.classes
    runtime = classes.java.lang.Runtime.getRuntime()

    def used_mib():
        runtime.gc()
        return (runtime.totalMemory() - runtime.freeMemory()) / 2**20

    environment = playing(BOIL)
    before = used_mib()
    for _ in range(12):
        environment.reset(BOIL)
    environment.close()
    assert used_mib() < before + 2
    assert environment.state() == {}
    assert environment.reset(BOIL).look.startswith("This room is called the hallway.")


# Rules


@needs_java
def test_an_episode_gives_the_expected_observations_and_rewards():
    environment = make_environment()
    start = environment.reset(PAINT)
    assert start.description == (
        "Your task is to use chemistry to create green paint. When you are done, focus on the "
        "green paint."
    )
    assert start.observation == f"{start.description}\n{start.look}"
    assert environment.step("open door to art studio").observation == "The door is now open."
    moved = environment.step("go to art studio")
    assert moved == StepResult("You move to the art studio.", 30, 30, False)
    failed = environment.step("focus on table")
    assert (failed.reward, failed.score, failed.done) == (-130, -100, True)


@needs_java
def test_the_first_action_beyond_a_hundred_moves_ends_the_episode():
    environment = playing(BOIL)
    # each of these actions takes ten or eleven moves of the simulator
    assert not say(environment, *["wait"] * 9).done
    results = [environment.step("wait1") for _ in range(4)]
    done = [result.done for result in results]
    assert environment.state()["moves"] > 100 and done[-1]
    assert environment.step("look around").done


@needs_java
@pytest.mark.parametrize("data_idx", [-1, -4639, 4639])
def test_an_index_outside_the_tasks_is_unknown(data_idx):
    with pytest.raises(EnvironmentFault, match=r"tasks 0 \.\. 4638") as fault:
        make_environment().reset(data_idx)
    assert fault.value.kind is ErrorKind.UNKNOWN_TASK
    compat = make_compat_environment()
    if data_idx < 0:
        assert compat.reset(data_idx).task.data_idx == data_idx + 4639
    else:
        with pytest.raises(EnvironmentFault) as fault:
            compat.reset(data_idx)
        assert fault.value.compat_message == "list index out of range"


@needs_java
def test_query_commands_are_answered_and_change_nothing():
    environment = playing(PAINT)
    say(environment, "open door to art studio", "go to art studio")
    before = environment.state()
    task, objects = environment.step("task"), environment.step(" Objects ")
    assert task.observation.startswith("Task description:\nYour task is to use chemistry")
    assert (task.reward, task.score) == (0, 30)
    assert "\n\tjug" in objects.observation and "\n\tpaint cupboard" in objects.observation
    assert "\n\tfocus on OBJ" in environment.step("help").observation
    assert environment.state() == before


@needs_java
def test_unusual_texts_are_rejected_and_change_nothing():
    environment = playing(BOIL)
    for action in ("", "(", "\n", "x" * 20000, "\ud800", "öäü\\", "go to moon"):
        answer = environment.step(action)
        assert (answer.observation, answer.reward) == ("No known action matches that input.", 0)
    assert environment.state()["moves"] == 0


@needs_java
def test_rejections_are_distinguished_from_observations():
    environment = playing(BOIL)
    refused = (
        "go to kitchen, jump, open picture, eat picture, pick up air, activate picture, "
        "mix picture, read picture, pour air in picture, dunk air in air"
    ).split(", ")
    for action in refused:
        assert re.match(REFUSAL, environment.step(action).observation), action
    done = ["look around", "open door to kitchen", "go to kitchen", "inventory", "look at sink"]
    done += ["activate stove", "pick up thermometer", "use thermometer on air", "task", "wait1"]
    for action in done:
        text = environment.step(action).observation
        assert not re.match(REFUSAL, text), f"{action}: {text}"
    choice = environment.step("open door").observation
    assert choice.startswith(AMBIGUOUS) and not re.match(REFUSAL, choice)
    assert environment.step("blank").observation == NOTHING_SAID
    assert re.match(REFUSAL, NOTHING_SAID)


# Expert


def play_expert(environment, max_actions=100):
    """Plays the expert; returns (last result, number of actions)."""
    for n in range(1, max_actions + 1):
        result = environment.step(environment.expert_action())
        if result.done:
            return result, n
    return result, n


@needs_java
def test_the_expert_recovers_from_a_detour():
    environment = playing(FIND_ANIMAL)
    say(environment, "open door to workshop", "go to workshop")
    assert environment.expert_action() == "go to hallway"
    assert play_expert(environment)[0].score == 100


def test_the_expert_finds_ways_through_closed_doors():
    look = (
        "This room is called the hallway. In it, you see: \n\tthe agent\nYou also see:\n"
        "\tA door to the kitchen (that is closed)\n\tA door to the workshop (that is open)\n"
    )
    assert step_towards(look, "outside") == "open door to kitchen"
    assert step_towards(look, "workshop") == "go to workshop"
    assert step_towards(look, "hallway") is None


@needs_java
def test_valid_actions_are_accepted():
    environment = playing(FIND_ANIMAL)
    actions = environment.valid_actions()
    assert actions == sorted(actions) and "open door to kitchen" in actions
    for action in random.Random(0).sample([a for a in actions if "focus" not in a], 20):
        text = environment.step(action).observation
        assert text != "No known action matches that input.", action
        if text.startswith(AMBIGUOUS):
            assert environment.valid_actions()[:2] == ["0", "1"]
            environment.step("0")


# HTTP interface


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("look around", "look around"),
        ("Thought: x\nAction: look around", "look around"),
        ("Action: wait</s>", "wait"),
        ("Action: a Action: b", "a"),
    ],
)
def test_actions_are_parsed_like_those_of_step_visual(text, action):
    assert read_action(text) == action


@needs_java
def test_answers_have_the_keys_of_agentgym():
    server = Replay(make_served_environment())
    assert server.created == {"id": 0}
    assert server.ask("/observation") == {"error": "'observation'"}
    assert server.ask("/step", "look around") == {
        "error": "'ScienceWorldEnv' object has no attribute 'variationIdx'"
    }
    start = server.ask("/reset", PAINT)
    assert start["observation"].startswith("This room is called the hallway.")
    assert (start["task_name"], start["var_num"], start["score"]) == (
        "chemistry-mix-paint-secondary-color",
        0,
        0,
    )
    assert server.ask("/step", "open door to art studio") == ("The door is now open.", 0, 0, False)
    visual = server.ask("/step_visual", "Action: go to art studio")
    assert (visual["reward"], visual["score"], visual["moves"]) == (30, 30, 2)
    assert {"look", "inv", "taskDesc", "valid"} < set(visual["info"])
    assert visual["object_tree"]["name"] == "universe"
    assert server.ask("/observation") == "You move to the art studio."
    detail = server.ask("/detail")
    assert (detail["task_name"], detail["score"], detail["deleted"]) == (
        "chemistry-mix-paint-secondary-color",
        30,
        False,
    )
    assert set(server.ask("/action_hint")) == {"possible_actions", "possible_objects"}
    assert len(server.ask("/state")["possible_actions"]) == 10
    assert "focus" in server.ask("/goals")["goals"]
    assert server.ask("/step", "focus on table")[1:] == (-130, -100, True)
    finished = {"error": "The task with environment 0 has finished."}
    assert server.ask("/step", "wait") == server.ask("/goals") == finished
