"""Web navigation as an environment, on the tiny site: instructions, scoring and failures."""

import base64
import json
import os
import signal

import pytest

from agentgym_envs.base.environment import EnvironmentFault, SetupError, SimulatorLost
from agentgym_envs.base.protocol import ErrorKind
from agentgym_envs.webarena import texts
from agentgym_envs.webarena.browser.launch import require_browser
from agentgym_envs.webarena.served import make_served_environment

try:
    require_browser()
except SetupError as error:
    pytest.skip(str(error), allow_module_level=True)

from agentgym_envs.webarena.browser.process import BrowserProcess
from agentgym_envs.webarena.environment import WebArenaEnvironment
from tests.envs.serving import serving
from tests.envs.webarena import browser_pages
from tests.envs.webarena.browser_pages import number
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world():
    made = browser_pages.PageWorld()
    BrowserProcess.get(made.reach).start()
    yield made
    BrowserProcess.get(made.reach).stop()


@pytest.fixture
def environment(world):
    made = WebArenaEnvironment(world)
    yield made
    made.close()


def solve(environment, data_idx):
    """Returns the results of the reset and of every step in an episode of the scripted agent."""
    results = [environment.reset(data_idx)]
    while not results[-1].done:
        results.append(environment.step(environment.expert_action()))
    return results


def test_an_agent_sees_page_address_objective_and_its_last_action(environment):
    first = environment.reset(1)
    head, page = first.observation.split("\n\n")
    assert head == "OBSERVATION:\nTab 0 (current): Tiny shop"
    tree, url, objective, previous = page.rsplit("\n", 3)
    assert tree.startswith("[1] RootWebArea 'Tiny shop' focused: True\n\t[2] heading 'Tiny shop'")
    assert url == "URL: http://onestopmarket.com/"
    assert objective == "OBJECTIVE: Put the Kite into the basket."
    assert previous == "PREVIOUS ACTION: None"
    assert first.tree == f"Tab 0 (current): Tiny shop\n\n{tree}"
    kite = number(first.observation, "link 'Kite'")
    seen = environment.step(f"Thought: there.\nAction: ```click [{kite}]```")
    assert seen.observation.endswith(f"ACTION: click [{kite}] where [{kite}] is link 'Kite'")
    assert "URL: http://onestopmarket.com/item/Kite" in seen.observation


@pytest.mark.parametrize("data_idx", [2, 3])
def test_stop_is_rewarded_only_if_the_task_is_solved(environment, data_idx):
    results = solve(environment, data_idx)
    assert [result.reward for result in results] == [0.0] * (len(results) - 1) + [1.0]
    assert results[-1].score == 1.0 and results[-1].observation.startswith("OBSERVATION:")
    environment.reset(data_idx)
    idle = environment.step("stop [7]")
    assert (idle.reward, idle.done) == (0.0, True)


def test_episodes_do_not_affect_each_other(world):
    buyer, other = WebArenaEnvironment(world), WebArenaEnvironment(world)
    assert solve(buyer, 1)[-1].score == 1.0
    other.reset(1)
    other.step("goto [http://onestopmarket.com/basket]")
    assert other.step("stop []").score == 0.0
    buyer.close()
    other.close()
    assert len(set(world.finished[-2:])) == 2


def test_an_episode_can_be_repeated_and_restored_in_another_environment(environment, world):
    first = [result.observation for result in solve(environment, 3)]
    assert [result.observation for result in solve(environment, 3)] == first
    environment.reset(3)
    environment.step(environment.expert_action())
    other = WebArenaEnvironment(world)
    other.restore(json.loads(json.dumps(environment.snapshot())))
    assert other.prompt == environment.prompt
    assert other.expert_action() == environment.expert_action()
    other.close()


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("dance", "'dance' is not an action"),
        ("click [999]", "there is no element [999] on this page"),
        ("goto [file:///etc/passwd]", "only addresses that begin with http:// or https://"),
        ("goto [google.com]", "this site cannot be reached from here"),
        ("goto [http://localhost:8000/]", "this site cannot be reached from here"),
        ("press [Magic]", "'Magic' is no key"),
    ],
)
def test_an_impossible_action_is_rejected_and_changes_nothing(environment, action, reason):
    before = environment.reset(0).observation
    result = environment.step(action)
    assert result.observation.startswith(f"{texts.REFUSED}{reason}")
    assert (result.reward, result.done, environment.prompt) == (0.0, False, before)


def test_the_scripted_agent_recovers_after_actions_of_another_agent(environment):
    environment.reset(1)
    about = number(environment.prompt, "link 'About us'")
    environment.step(f"click [{about}]")
    assert environment.expert_action() == "```goto [http://onestopmarket.com]```"
    result = environment.step("goto [http://onestopmarket.com/]")
    while not result.done:
        result = environment.step(environment.expert_action())
    assert result.score == 1.0


def test_the_state_has_the_viewers_fields_even_after_the_end(environment):
    assert environment.state() == {}
    solve(environment, 1)
    state = environment.state()
    assert state["url"] == "http://onestopmarket.com/basket?add=Kite"
    assert state["title"] == "Basket" and "StaticText 'Kite'" in state["page"]
    assert state["checks"] == ["program_html exact_match: holds"]
    kind, _, data = state["screenshot"].partition(",")
    assert kind == "data:image/jpeg;base64" and base64.b64decode(data)[:2] == b"\xff\xd8"
    with pytest.raises(EnvironmentFault) as caught:
        environment.step("stop []")
    assert caught.value.kind is ErrorKind.FINISHED


def test_a_site_that_is_down_is_a_simulator_error_and_closes_the_tabs(environment, world):
    environment.reset(0)
    with pytest.raises(EnvironmentFault, match="status 503") as caught:
        environment.step("goto [http://onestopmarket.com/broken]")
    assert caught.value.kind is ErrorKind.SIMULATOR
    with pytest.raises(EnvironmentFault) as caught:
        environment.step("stop []")
    assert caught.value.kind is ErrorKind.NOT_RESET
    assert environment.reset(0).observation


def test_an_endless_script_is_stopped_and_the_episode_continues(environment):
    environment.reset(0)
    page = environment.step("goto [http://onestopmarket.com/endless]").observation
    button = number(page, "button 'Once'")
    clicked = environment.step(f"click [{button}]")
    assert "heading 'Endless'" in clicked.observation and not clicked.done
    assert "Tiny shop" in environment.step("goto [http://onestopmarket.com/]").observation


def test_an_episode_whose_page_hangs_repeatedly_ends_with_score_0(environment):
    environment.reset(0)
    page = environment.step("goto [http://onestopmarket.com/endless]").observation
    button = number(page, "button 'Always'")
    last = environment.step(f"click [{button}]")
    assert (last.observation, last.reward, last.score, last.done) == (texts.HUNG, 0, 0, True)
    assert environment.state()["title"] == "Endless"
    with pytest.raises(EnvironmentFault) as caught:
        environment.step("stop []")
    assert caught.value.kind is ErrorKind.FINISHED
    assert environment.reset(0).observation


@pytest.mark.parametrize(
    "address", ["HTTP://ONESTOPMARKET.COM/", "OneStopMarket.com", "Http://onestopmarket.COM/#Top"]
)
def test_scheme_and_host_of_an_address_can_be_in_upper_case(environment, address):
    environment.reset(0)
    environment.step("goto [http://onestopmarket.com/about]")
    assert "Tiny shop" in environment.step(f"goto [{address}]").observation


def test_the_path_of_an_address_keeps_its_case(environment):
    environment.reset(0)
    page = environment.step("goto [HTTP://OneStopMarket.com/item/Kite?Q=A]").observation
    assert "URL: http://onestopmarket.com/item/Kite?Q=A" in page


@pytest.mark.parametrize("action", ["scroll [down]", "click [14]", "stop []"])
def test_a_killed_browser_is_reported_once_and_then_replaced(environment, world, action):
    """Checks that a killed browser is reported neither as a rejected action nor as a broken page."""
    environment.reset(1)
    kill_browser(BrowserProcess.get(world.reach))
    with pytest.raises(SimulatorLost):
        environment.step(action)
    assert solve(environment, 0)[-1].score == 1.0


def kill_browser(process):
    async def ask():
        session = await process.chromium.browser.new_browser_cdp_session()
        found = await session.send("SystemInfo.getProcessInfo")
        return next(item["id"] for item in found["processInfo"] if item["type"] == "browser")

    os.kill(process.run(ask(), 10), signal.SIGKILL)


def test_the_server_has_the_routes_and_bodies_of_agentgym():
    with serving("tests.envs.webarena.browser_pages", capacity=2) as client:
        assert client.get("/").json() == "ok"
        created = client.post("/create").json()
        assert created == {"env_idx": 0}
        begun = client.post("/reset", json={"env_idx": 0, "seed": 0, "idx": 0}).json()
        assert begun.keys() == {"observation", "sites", "object"}
        assert begun["observation"].startswith("Tab 0 (current): Tiny shop\n\n[1] RootWebArea")
        assert begun["object"] == "What does the Kite cost?"
        seen = client.get("/observation", params={"env_idx": 0}).json()
        assert seen == f"OBSERVATION:\n{begun['observation']}\nURL: http://onestopmarket.com/\n" + (
            "OBJECTIVE: What does the Kite cost?\nPREVIOUS ACTION: None"
        )
        nodes = client.get("/observation_metadata", params={"env_idx": 0}).json()
        assert nodes["text"]["obs_nodes_info"]["2"]["text"] == "[2] heading 'Tiny shop'"
        picture = client.get("/screenshot", params={"env_idx": 0}).json()
        assert picture["screenshot"].startswith("data:image/jpeg;base64,")
        assert client.get("/list_envs").json() == [0]
        answer = client.post("/step", json={"env_idx": 0, "action": "so: ```stop [4]```"}).json()
        assert answer.pop("observation").endswith("PREVIOUS ACTION: stop [4]")
        assert answer == {"reward": 1.0, "terminated": True, "truncated": False, "info": None}
        assert client.post("/close", json={"env_idx": 0}).json() is True
        assert client.get("/list_envs").json() == []


def test_a_server_whose_browser_is_killed_continues_the_same_episode():
    with serving("tests.envs.webarena.browser_pages", step_seconds=60.0) as client:
        client.post("/create")
        client.post("/reset", json={"env_idx": 0, "idx": 1})
        assert "heading 'Teapot'" in step(client, "click [14]")["observation"]
        kill_a_child_of_this_process()
        assert "heading 'Tiny shop'" in step(client, "go_back")["observation"]
        assert "heading 'Teapot'" in step(client, "go_forward")["observation"]
        assert client.get("/health").json()["worker_restarts"] == 1


def step(client, action):
    answer = client.post("/step", json={"env_idx": 0, "action": action})
    assert answer.status_code == 200, answer.text
    return answer.json()


def kill_a_child_of_this_process():
    """Kills the browser of the worker process that was started last."""
    psutil = pytest.importorskip("psutil")
    workers = [
        child
        for child in psutil.Process().children()
        if "agentgym_envs.base.worker" in child.cmdline()
    ]
    # The list contains neither the shell script that starts the browser nor the browser's own
    # children.
    browsers = [
        child
        for child in workers[-1].children(recursive=True)
        if "--remote-debugging-pipe" in child.cmdline()
        and not any(word.startswith(("--type=", "/bin/sh")) for word in child.cmdline())
    ]
    browsers[0].kill()
    until(lambda: not browsers[0].is_running())


def test_shared_resources_start_before_all_workers_and_end_after_them(tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("SHARED_LOG", str(log))
    with serving("tests.envs.webarena.shared_log", workers=2):
        assert log.read_text().splitlines() == ["begin", "worker", "worker"]
    assert log.read_text().splitlines() == ["begin", "worker", "worker", "end"]


def test_an_unknown_site_or_a_missing_deployment_is_reported():
    with pytest.raises(SetupError, match="there is no embedded site 'gitea'"):
        make_served_environment(sites="gitea")
    with pytest.raises(SetupError, match="nowhere.json"):
        make_served_environment(deployment="/nowhere.json")


def test_the_error_for_missing_playwright_names_the_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"pip install -e .*\.\[web\]"):
        make_served_environment()
