"""ALFWorld: a downloaded game written by hand, generated houses, the expert, and TextWorld's answers."""

import hashlib
import importlib
import importlib.util
import json
import random
import re

import pytest

from agentgym_envs.alfworld import houses
from agentgym_envs.alfworld.environment import AlfWorldEnvironment
from agentgym_envs.alfworld.facts import Facts
from agentgym_envs.alfworld.games import read_game
from agentgym_envs.alfworld.grammar import GrammarError, read_rules
from agentgym_envs.alfworld.pddl import ProblemError, read_goal
from agentgym_envs.alfworld.served import MAX_TURNS, make_served_environment
from agentgym_envs.base import manifest
from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.in_process import InProcessServer

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("alfworld") is None, reason="needs the extra alfworld"
)
CONTENT = "d25e0f88f7f11c9f01fd4fa7401ef5ad2de83ea07a12a12b7a211c381ec9f672"
FIRST_OF_KIND = range(len(houses.KINDS))

# Downloaded games

TEXTS = '''
grammar :: """
    {
        "intro": [{"rhs": "Hello!\\n\\n#look.feedback#\\n\\nYour task is to: put a clean mug in box."}],
        "look.feedback": [
            {
                "condition": "atlocation(a:agent, l:location) & receptacleatlocation(r:receptacle, l:location)",
                "rhs": "You face the [{r.name | receptacleatlocation(r:receptacle, l:location)}]."
            },
            {"rhs": "You see [{#one(r)# | receptacleatlocation(r:receptacle, l:location)}]."}
        ],
        "one(r)": [{"rhs": "{r.indefinite} {r.name or r.id}"}],
        # the lines of TextWorld's files may be comments
        "inside": [
            {"condition": "openable(r:receptacle) & opened(r:receptacle)", "rhs": "In it: #things#."},
            {"condition": "openable(r:receptacle)", "rhs": "The {r.name} is closed."},
            {"rhs": "On it: #things#."}
        ],
        "things": [{"rhs": "[{o.indefinite + ' ' + o.name | inreceptacle(o:object, r:receptacle)}]"}],
        "list_empty": [{"rhs": "nothing"}],
        "list_separator": [{"rhs": ", "}],
        "list_last_separator": [{"rhs": ", and "}]
    }
""";
action look { template :: "look"; feedback :: "#look.feedback#"; }
action GotoLocation {
    template :: "go to [{r.name | receptacleatlocation(r:receptacle, lend:location)}]";
    feedback :: "You arrive at {lend.name}. #inside#";
}
action OpenObject { template :: "open {r}"; feedback :: "Open. #inside#"; }
action PickupObject { template :: "take {o} from {r}"; feedback :: "You have the {o.name}."; }
action PutObject { template :: "put {o} in/on {r}"; feedback :: "You put it in/on the {r.name}."; }
action CleanObject { template :: "clean {o} with {r}"; feedback :: "You clean the {o.name}."; }
'''
SINK, BOX = "sink_bar_1_bar_sinkbasin", "box_bar_1"
PROBLEM = f"""
(define (problem a) (:domain alfred) ; a comment
 (:objects agent1 - agent loc_bar_0 loc_bar_1 loc_bar_2 - location {SINK} {BOX} - receptacle
  mug_bar_1 mug_bar_2 fork_bar_1 - object MugType - otype ForkType - otype BoxType SinkBasinType - rtype)
 (:init (= (total-cost) 0) (= (distance loc_bar_0 loc_bar_1) 3) (atLocation agent1 loc_bar_0)
  (receptacleType {SINK} SinkBasinType) (receptacleType {BOX} BoxType) (openable {BOX})
  (receptacleAtLocation {SINK} loc_bar_1) (receptacleAtLocation {BOX} loc_bar_2)
  (canContain BoxType MugType) (canContain SinkBasinType MugType) (canContain SinkBasinType ForkType)
  (objectType mug_bar_1 MugType) (objectType mug_bar_2 MugType) (objectType fork_bar_1 ForkType)
  (inReceptacle mug_bar_1 {SINK}) (inReceptacle mug_bar_2 {SINK}) (inReceptacle fork_bar_1 {SINK})
  (pickupable mug_bar_1) (pickupable mug_bar_2) (pickupable fork_bar_1)
  (cleanable mug_bar_1) (cleanable mug_bar_2))
 (:goal (and (exists (?r - receptacle) (exists (?o - object) (and (objectType ?o MugType)
  (receptacleType ?r BoxType) (isClean ?o) (inReceptacle ?o ?r)))))))
"""
NAME = "pick_clean_then_place_in_recep-Mug-None-Box-7"


def write_game(folder, part, trial, problem=PROBLEM, texts=TEXTS):
    path = folder / "json_2.1.1" / part / NAME / trial / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"grammar": texts, "pddl_problem": problem}))


@pytest.fixture
def download(tmp_path):
    write_game(tmp_path, "train", "trial_1")
    write_game(tmp_path, "valid_train", "trial_2")
    write_game(tmp_path, "valid_unseen", "trial_3")
    return tmp_path


@pytest.fixture
def game(download):
    return make_served_environment(games=str(download)).factory()


def test_a_downloaded_game_has_the_texts_of_its_own_grammar(game):
    first = game.reset(0)
    task = "Your task is to: put a clean mug in box."
    assert first.observation == f"You see a box 1, and a sinkbasin 1.\n{task}"
    assert first.available_actions == ("go to box 1", "go to sinkbasin 1", "look")
    here = game.step("go to sinkbasin 1")
    # without the name of the location, as in AgentGym
    assert here.observation == "On it: a fork 1, a mug 2, and a mug 1."
    assert game.step("look").observation == "You face the sinkbasin 1."
    assert game.step("take mug 2 from sinkbasin 1").observation == "You have the mug 2."
    assert "clean mug 2 with sinkbasin 1" in game.valid_actions()
    assert "take mug 1 from sinkbasin 1" not in game.valid_actions()  # the hands are full
    assert game.step("clean mug 2 with sinkbasin 1").observation == "You clean the mug 2."
    assert game.step("go to box 1").observation == "The box 1 is closed."
    assert game.step("put mug 2 in/on box 1").observation == "Nothing happens."
    assert game.step("open box 1").observation == "Open. In it: nothing."
    last = game.step("put mug 2 in/on box 1")
    assert (last.observation, last.reward, last.done) == ("You put it in/on the box 1.", 1, True)


def test_a_dirty_object_is_not_enough(game):
    game.reset(0)
    for action in ("go to sinkbasin 1", "take mug 1 from sinkbasin 1", "go to box 1", "open box 1"):
        game.step(action)
    # both forms of AgentGym's and of later texts are understood, whatever the case and the spaces
    last = game.step(" Move  mug 1 to BOX 1 ")
    assert (last.observation, last.reward, last.done) == ("You put it in/on the box 1.", 0, False)
    assert game.expert_action() == "go to sinkbasin 1"  # for a mug that can be cleaned


def test_the_expert_puts_a_wrong_object_away(game):
    game.reset(0)
    game.step("go to sinkbasin 1")
    game.step("take fork 1 from sinkbasin 1")
    game.step("go to box 1")
    actions = [game.expert_action()]
    while not game.step(actions[-1]).done:
        actions.append(game.expert_action())
    assert actions == [
        "go to sinkbasin 1",
        "put fork 1 in/on sinkbasin 1",
        "take mug 2 from sinkbasin 1",
        "clean mug 2 with sinkbasin 1",
        "go to box 1",
        "open box 1",
        "put mug 2 in/on box 1",
    ]


def test_an_expert_that_searches_looks_into_places_before_it_knows(download):
    game = make_served_environment(games=str(download), expert="searches").factory()
    game.reset(0)
    actions = [game.expert_action()]
    while not game.step(actions[-1]).done:
        actions.append(game.expert_action())
    assert actions == [
        "go to box 1",
        "open box 1",
        "go to sinkbasin 1",
        "take mug 2 from sinkbasin 1",
        "clean mug 2 with sinkbasin 1",
        "go to box 1",
        "put mug 2 in/on box 1",
    ]


def test_an_unknown_kind_of_expert_is_refused(download):
    with pytest.raises(SetupError, match="expert='guesses'; expected knows or searches"):
        make_served_environment(games=str(download), expert="guesses")


def test_downloaded_games_have_the_official_splits_or_the_ids_of_agentgym(download):
    def listed():
        tasks = make_served_environment(games=str(download)).tasks()
        manifest.check(tasks)
        return [(task["split"], task["game"].split("/")[-1]) for task in tasks]

    assert listed() == [("train", "trial_1"), ("test", "trial_3")]
    entries = [{"item_id": 0, "task_type": NAME, "task_id": "trial_1"}]
    (download / "mappings_train.json").write_text(json.dumps(entries))
    entries[0]["task_id"] = "trial_2"
    (download / "mappings_test.json").write_text(json.dumps(entries))
    assert listed() == [("train", "trial_1"), ("test", "trial_2")]
    entries[0]["task_id"] = "trial_3"
    (download / "mappings_test.json").write_text(json.dumps(entries))
    with pytest.raises(
        SetupError, match="valid_train/.*trial_3/game.tw-pddl of a mapping is missing"
    ):
        listed()
    (download / "mappings_test.json").write_text("[3]")
    with pytest.raises(SetupError, match="mappings_test.json is not a mapping of AgentGym"):
        listed()


def test_a_folder_without_games_is_refused(tmp_path):
    with pytest.raises(SetupError, match="alfworld-download"):
        make_served_environment(games=str(tmp_path))


def test_unusual_grammars_and_goals_are_errors():
    with pytest.raises(GrammarError, match="no JSON"):
        read_rules('grammar :: """ {"a": [} """;')
    facts = Facts([])
    with pytest.raises(GrammarError, match="no rule for #missing#"):
        read_rules("").text("#missing#", facts, {}, {})
    with pytest.raises(GrammarError, match="unknown form"):
        read_rules("").text("{__import__('os').name}", facts, {}, {})
    with pytest.raises(ProblemError, match="'forall' are not supported"):
        read_goal("(:goal (and (forall (?o - object) (isclean ?o))))")


def test_answers_have_the_fields_of_agentgyms_server(download):
    server = InProcessServer(make_served_environment(games=str(download)))

    def call(method, target, **body):
        status, content = server.exchange(method, target, body)
        return status, json.loads(content)

    assert call("GET", "/") == (200, "This is environment AlfWorld.")
    assert call("POST", "/create") == (200, {"id": 0})
    assert call("GET", "/detail?id=0")[1] == {"done": False, "reward": 0, "deleted": False}
    status, start = call("POST", "/reset", id=0, game=0, world_type="Text")
    actions = ["go to box 1", "go to sinkbasin 1", "look"]
    assert (start["id"], start["available_actions"]) == (0, actions)
    assert start["task_type"] == f"{NAME}/trial_1"
    assert call("POST", "/step", id=0, action="fly") == (
        200,
        {
            "observation": "Nothing happens.",
            "reward": 0.0,
            "available_actions": actions,
            "done": False,
        },
    )
    assert call("GET", "/available_actions?id=0") == (200, actions)
    assert call("GET", "/observation?id=0") == (200, "Nothing happens.")
    assert call("GET", "/detail?id=0")[1]["game"] == 0
    assert call("POST", "/reset", id=0, game=0, world_type="Dream")[0] == 422
    assert call("POST", "/reset", id=0, game=2)[1]["type"] == "unknown_task"
    server.close()


HOSTILE = [
    "",
    " ",
    "#look#",
    "{r.name}",
    "[{o|x}]",
    "\0",
    "\\",
    "go to " * 900,
    "put  in/on ",
    "é☃",
]


@pytest.mark.parametrize("action", HOSTILE)
def test_hostile_actions_do_nothing(game, action):
    game.reset(0)
    before = game.valid_actions()
    result = game.step(action)
    assert (result.observation, result.reward, result.done) == ("Nothing happens.", 0, False)
    assert game.valid_actions() == before


# Generated houses


@pytest.fixture
def house():
    return make_served_environment().factory()


@needs_package
def test_generated_tasks_are_split_by_floor_plans():
    tasks = houses.task_manifest()
    plans = {
        split: {task["floor_plan"] for task in tasks if task["split"] == split}
        for split in ("train", "test")
    }
    assert not plans["train"] & plans["test"]
    assert len(tasks) == 2620
    assert max(task["data_idx"] for task in tasks if task["split"] == "train") == 2419
    assert all(number % 100 <= 6 for number in plans["test"])
    assert {task["task_type"] for task in tasks if task["split"] == "test"} == set(houses.KINDS)


@needs_package
def test_more_tasks_are_training_tasks_after_those_of_agentgym():
    environment = make_served_environment(more_tasks=30)
    tasks = environment.tasks()
    manifest.check(tasks)
    assert tasks[:2620] == houses.task_manifest()
    assert [(task["data_idx"], task["split"]) for task in tasks[2620:]] == [
        (2620 + i, "train") for i in range(30)
    ]
    assert "Your task is to" in environment.factory().reset(2649).observation
    assert environment.spec.num_tasks == 2650


@needs_package
@pytest.mark.parametrize("options", [dict(more_tasks=-1), dict(more_tasks=1, games="games")])
def test_impossible_numbers_of_more_tasks_are_refused(options):
    with pytest.raises(SetupError, match="more_tasks"):
        make_served_environment(**options)


@needs_package
def test_the_content_of_the_houses_has_not_changed():
    facts = [houses.build(data_idx).facts for data_idx in (0, 1, 2619)]
    assert hashlib.sha256(json.dumps(facts).encode()).hexdigest() == CONTENT


@needs_package
@pytest.mark.parametrize("data_idx", [*FIRST_OF_KIND, 2420, 2425])
def test_the_expert_solves_every_type_of_task(house, data_idx):
    result = house.reset(data_idx)
    assert not result.reward
    for _ in range(MAX_TURNS):
        result = house.step(house.expert_action())
        if result.done:
            break
    assert (result.reward, result.done) == (1, True)


@needs_package
@pytest.mark.parametrize("data_idx", FIRST_OF_KIND)
def test_the_expert_continues_from_any_state(house, data_idx):
    house.reset(data_idx + 60)
    rng = random.Random(data_idx)
    for _ in range(40):
        if house.step(rng.choice(house.valid_actions())).done:
            house.reset(data_idx + 60)
    for _ in range(MAX_TURNS):
        if house.step(house.expert_action()).done:
            return
    pytest.fail("not solved")


@needs_package
@pytest.mark.parametrize("data_idx", range(2420, 2426))
def test_an_expert_that_searches_names_only_things_that_a_text_has_told(data_idx):
    house = make_served_environment(expert="searches").factory()
    result = house.reset(data_idx)
    told = ""
    while not result.done:
        told += result.observation.replace(".", ",")
        action = house.expert_action()
        for thing in re.findall(r"[a-z]+ \d+", action):
            assert f"{thing}," in told, (action, told)
        result = house.step(action)
        assert result.observation != "Nothing happens."


@needs_package
def test_waiting_is_worth_nothing(house):
    house.reset(7)
    results = [house.step("look") for _ in range(MAX_TURNS)]
    assert not any(result.reward or result.done for result in results)
    with pytest.raises(EnvironmentFault, match="tasks 0 .. 2619"):
        house.reset(2620)


@pytest.mark.slow
@needs_package
@pytest.mark.parametrize("data_idx", [1, 2, 3])
def test_rules_and_texts_equal_those_of_textworld(tmp_path, monkeypatch, data_idx):
    pytest.importorskip("fast_downward")
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))  # the package creates this folder
    textworld = pytest.importorskip("textworld")
    pddl = importlib.import_module("textworld.envs.pddl")
    demangler = importlib.import_module("alfworld.agents.environment.alfred_tw_env").AlfredDemangler
    data = as_download(data_idx)
    path = tmp_path / "json_2.1.1" / "x" / "y" / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(data))
    reference = demangler(pddl.PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
    reference.load(data)
    state = reference.reset()
    ours = AlfWorldEnvironment(lambda _: read_game(tmp_path, "x/y"), 1)
    first = ours.reset(0)
    assert state.feedback.endswith(first.observation.replace("\n", "\n\n"))
    rng = random.Random(data_idx)
    for _ in range(25):
        assert list(ours.valid_actions()) == state["admissible_commands"]
        action = ours.expert_action() if rng.random() < 0.5 else rng.choice(ours.valid_actions())
        state, _, is_won = reference.step(action)
        result = ours.step(action)
        assert (result.observation, result.done) == (state.feedback, is_won)
        if is_won:
            break


TYPED = {
    "atlocation": ("agent", "location"),
    "receptacletype": ("receptacle", "rtype"),
    "receptacleatlocation": ("receptacle", "location"),
    "objecttype": ("object", "otype"),
    "cancontain": ("rtype", "otype"),
}


def as_download(data_idx):
    """Returns a generated game in the format of ALFWorld's download."""
    game, task, package = houses.build(data_idx), houses.task_of(data_idx), houses.package()
    things = dict.fromkeys(["sinkbasintype", "microwavetype", "fridgetype"], "rtype")
    things |= dict.fromkeys(["knifetype", "butterknifetype"], "otype")
    for name, arguments in game.facts:
        if name in TYPED:
            things.update(zip(arguments, TYPED[name], strict=True))
    objects = " ".join(f"{thing} - {kind}" for thing, kind in things.items())
    start = " ".join(f"({' '.join((name, *arguments))})" for name, arguments in game.facts)
    words = {"obj": task.thing, "recep": task.goal, "toggle": task.goal}
    goal = package.goals[task.kind]["pddl"].format(**words).replace("#", "-")
    folder = importlib.util.find_spec("alfworld").submodule_search_locations[0]
    with open(f"{folder}/data/alfred.pddl") as file:
        domain = file.read()
    told = game.grammar.rules["task"][0][1]
    return {
        "pddl_domain": domain.partition("(:action help")[0] + ")",
        "grammar": package.grammar.replace("Your task is to: UNKNOWN GOAL.", told),
        "pddl_problem": f"(define (problem p) (:domain alfred) (:objects {objects}) "
        f"(:init {start} (= (total-cost) 0)) {goal}",
    }
