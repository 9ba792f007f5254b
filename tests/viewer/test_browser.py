"""The viewer's page in a real browser; the tests are skipped if there is no browser.

pip install -e ".[viewer_test]" && apt-get install chromium
"""

import base64
import io
import json
import math
import os
import re
import shutil
import threading

import PIL.Image
import pytest

from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.viewer.live import LiveRun, LiveServer
from agentgym_jax.viewer.report import write_comparison, write_report

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
sync_api = pytest.importorskip(
    "playwright.sync_api", reason='needs playwright: pip install -e ".[viewer_test]"'
)
expect = sync_api.expect  # waits without `eval`, which the page's security policy forbids
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a browser: apt-get install chromium, or set CHROMIUM"
)
RECIPES = """Crafting commands:
craft 4 oak planks using 1 oak log
craft 1 crafting table using 4 planks
craft 4 stick using 2 planks

Goal: craft crafting table."""
ROOM = """Your task is to boil water. First, focus on it.
This room is called the kitchen. In it, you see:\x20
\tthe agent
\ta stove, which is turned off.
You also see:
\tA door to the hallway (that is closed)"""
GRID = ["WGWGWGWG", "WG>>  WG", "WG  KGWG", "WGWGWGWG"]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tab(browser):
    """Yields a browser tab; if the browser reported errors, the test fails at its end."""
    context = browser.new_context(viewport={"width": 1300, "height": 800})
    page, complaints = context.new_page(), []
    page.on("console", lambda m: complaints.append(m.text) if m.type != "log" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def open_page(tab):
    def open_page(run, link="#overview"):
        page = write_report(run, transports={}, max_replays=0)
        tab.goto(f"file://{page}{link}")
        tab.wait_for_selector("html[data-ready]")
        return tab

    return open_page


def lines(tab):
    return tab.locator("#episode-list .line .about").all_inner_texts()


def test_the_overview_shows_warnings_and_curves(open_page, learning_run):
    tab = open_page(learning_run)
    assert "6" in tab.inner_text(".numbers") and "grpo" in tab.inner_text(".facts")
    assert tab.locator(".warnings .card").count() == 7
    assert tab.locator(".chart svg[role=img]").count() >= 3
    tab.get_by_role("button", name="Parse errors").click()
    tab.wait_for_selector("#episodes:not([hidden])")
    assert tab.inner_text(".count") == "2 of 6 episodes"


def test_the_overview_begins_with_the_verdict_and_what_to_look_at(open_page, learning_run):
    tab = open_page(learning_run)
    assert "No clear change" in tab.inner_text(".verdict h3")
    assert "0 % (step 0) to 100 % (step 2) on 1 task" in tab.inner_text(".verdict")
    group = tab.inner_text(".groups tbody tr")
    assert "Unlock" in group and "0 %" in group and "100 %" in group and "+100" in group
    rows = tab.locator("[aria-labelledby=evaluations-title] tbody tr").all_inner_texts()
    assert [row.split()[:3] for row in rows] == [["2", "sampled", "100"], ["0", "sampled", "0"]]
    tab.get_by_role("link", name="First solved").click()
    tab.wait_for_url("**#episode=step_000002/0")
    tab.goto(f"{tab.url.partition('#')[0]}#overview")
    tab.locator(".highlights li", has_text="Newly solved").get_by_role(
        "link", name="side by side"
    ).click()
    tab.wait_for_url("**#compare=eval_000000/0,eval_000002/0")


def test_the_list_opens_at_the_newest_step(open_page, learning_run):
    tab = open_page(learning_run, "#episodes")
    steps = [line.split(" · ")[0] for line in lines(tab)]
    assert steps == ["evaluation 2", "step 2", "step 2", "step 1", "step 1", "evaluation 0"]
    tab.select_option("[name=sort]", "oldest")
    assert lines(tab)[0].startswith("evaluation 0")


def test_a_long_observation_is_folded_until_it_is_opened(open_page, make_run, make_record):
    long = "\n".join(f"line {i}" for i in range(60))
    record = make_record(turns=[("look", long, 0.0), ("wait", "short", 0.0)])
    tab = open_page(make_run({"step_000001": [record]}), "#episode=step_000001/0")
    text = tab.locator("#turn-1 pre.text").last
    folded = text.bounding_box()["height"]
    tab.get_by_role("button", name="Show all 60 lines").click()
    assert text.bounding_box()["height"] > 3 * folded
    assert tab.locator("#turn-2 .unfold").count() == 0


def test_the_config_can_be_filtered(open_page, learning_run):
    tab = open_page(learning_run)
    tab.keyboard.press("g")
    tab.wait_for_selector("#config:not([hidden])")
    tab.get_by_label("Filter keys and values").fill("gap")
    rows = tab.locator("#config tbody tr:visible").all_inner_texts()
    assert [row.split() for row in rows] == [["learner"], ["learner.max_logprob_gap", "0.01"]]


def test_the_turn_limit_is_drawn_as_steps_and_curves_have_words_as_labels(open_page, make_run):
    metrics = {
        step: {"rollout/turns_mean": 3, "horizon/turns": 4 if step < 3 else 8} for step in range(5)
    }
    tab = open_page(make_run({}, metrics))
    chart = tab.locator(".chart", has_text="Turns and horizon")
    assert chart.locator(".legend li").all_inner_texts() == ["turns used", "turn limit"]
    line = chart.locator("path.stepped").get_attribute("d")
    heights = [part.partition("H")[0].split(" ")[1] for part in line[1:].split("L")]
    assert len(heights) == 5 and len(set(heights[:3])) == 1 and len(set(heights)) == 2


def test_two_runs_are_compared(tab, learning_run, make_run, make_record, tmp_path):
    lost = [make_record(item="babyai_64", turns=[("turn left", "wall", 0.0)])]
    other = make_run({"eval_000002": lost}, {2: {"eval/success": 0.0}}, {"seed": 3}, name="other")
    out = tmp_path / "comparison.html"
    write_comparison([learning_run, other], out, transports=[{}, {}], max_replays=0)
    tab.goto(f"file://{out}")
    tab.wait_for_selector("html[data-ready]")
    assert "B solves 0 % (step 2) and A 100 % (step 2)" in tab.inner_text(".verdict")
    assert "seed" in tab.inner_text("#overview table.values")
    curves = tab.locator(".chart", has_text="Solved tasks: training")
    assert curves.locator(".legend").inner_text() == "A"
    tab.locator(".task-lists a").first.click()
    tab.wait_for_url("**#compare=a.eval_000002/0,b.eval_000002/0")
    tab.wait_for_selector("table.compare")
    heads = tab.locator("table.compare thead th").all_inner_texts()
    assert "A, evaluation 2" in heads[1] and "B, evaluation 2" in heads[2]
    tab.keyboard.press("e")
    tab.select_option("[name=run]", "1")
    expect(tab.locator(".count")).to_have_text("1 of 7 episodes")


def test_a_phone_shows_the_list_or_an_episode_with_its_drawing(browser, make_run, make_record):
    state = {"level": "Level", "grid": GRID, "position": [1, 1], "facing": "right", "moves": 0}
    state |= {"max_moves": 9, "carrying": None, "things": []}
    turns = [("look", "a room\n" * 12, 0.0)] * 9
    run = make_run({"step_000001": [make_record(turns=turns) | {"worlds": [state] * 10}]})
    path = write_report(run, transports={}, max_replays=0)
    context = browser.new_context(viewport={"width": 390, "height": 844})
    tab = context.new_page()
    tab.goto(f"file://{path}#episodes")
    tab.wait_for_selector("html[data-ready]")
    assert tab.locator("#filter-text").is_hidden() and tab.locator("#episode").is_hidden()
    tab.get_by_role("button", name="Filters").click()
    assert tab.locator("#filter-text").is_visible()
    tab.locator(".list .line").click()
    tab.wait_for_selector("#turn-9")
    for _ in range(8):
        tab.get_by_role("button", name="Next turn").click()
    drawing = tab.locator(".grid-world").bounding_box()
    turn = tab.locator("#turn-8 h4").bounding_box()
    assert 0 < drawing["y"] and drawing["y"] + drawing["height"] < turn["y"] < 844
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    tab.get_by_role("link", name="List").click()
    expect(tab.locator("#episode-list")).to_be_visible()
    for view in ("overview", "compare", "config"):
        tab.goto(f"file://{path}#{view}")
        assert tab.evaluate("document.documentElement.scrollWidth") == 390, view
    context.close()


def test_filters_narrow_the_list_of_episodes(open_page, learning_run):
    tab = open_page(learning_run, "#episodes")
    assert tab.inner_text(".count") == "6 of 6 episodes"
    tab.select_option("[name=outcome]", "success")
    assert tab.inner_text(".count") == "2 of 6 episodes"
    tab.select_option("[name=kind]", "eval")
    assert tab.inner_text(".count") == "1 of 6 episodes" and "evaluation 2" in lines(tab)[0]
    tab.get_by_role("button", name="Clear").click()
    tab.fill("[name=from]", "2")
    tab.fill("[name=low]", "0.5")
    expect(tab.locator(".count")).to_have_text("2 of 6 episodes")
    tab.fill("[name=text]", "babyai_64")
    expect(tab.locator(".count")).to_have_text("1 of 6 episodes")
    tab.fill("[name=text]", "nothing like it")
    expect(tab.locator(".count")).to_have_text("0 of 6 episodes")


def test_keys_move_through_episodes_and_turns_and_update_the_address(open_page, learning_run):
    tab = open_page(learning_run, "#episode=step_000001/0")
    tab.wait_for_selector(".turn")
    tab.keyboard.press("n")
    tab.keyboard.press("ArrowRight")
    # The page sets this address by `replaceState`, which `tab.url` shows only after an event.
    assert tab.evaluate("location.hash") == "#episode=step_000001/0&turn=2"
    assert tab.locator(".turn.current h4").inner_text().startswith("Turn 2")
    assert "repeat" in tab.locator(".turn.current").inner_text()
    assert "Turn 2 of 3: turn left" in tab.inner_text("#announcer")
    tab.keyboard.press("j")
    tab.wait_for_url("**#episode=step_000001/1")
    tab.keyboard.press("k")
    tab.wait_for_url("**#episode=step_000001/0")
    tab.keyboard.press("/")
    expect(tab.locator("#filter-text")).to_be_focused()
    tab.keyboard.type("jn?")  # keys typed into an input field are not shortcuts
    assert tab.input_value("#filter-text") == "jn?"
    tab.keyboard.press("Escape")
    tab.keyboard.press("?")
    assert tab.locator("#help-dialog").is_visible()
    tab.keyboard.press("Escape")
    assert not tab.locator("#help-dialog").is_visible()


def test_a_link_opens_an_episode_at_a_turn(open_page, learning_run):
    tab = open_page(learning_run, "#episode=step_000001/1&turn=3")
    tab.wait_for_selector("#turn-3.current")
    assert "parse error" in tab.inner_text("#turn-3")
    assert tab.locator(".line.chosen").get_attribute("aria-selected") == "true"


def test_tokens_show_their_recorded_values(open_page, make_run, make_record):
    record = make_record(turns=[("é漢", "ok", 1.0)])
    turn, n = record["turns"][0], len(record["tokens"])
    for key, value in (("advantages", -0.25), ("reference_logprobs", -1.5)):
        record[key] = [0.0] * n
        record[key][turn["action_start"]] = value
    tab = open_page(make_run({"step_000001": [record]}), "#episode=step_000001/0")
    tab.wait_for_selector(".tokens.action")
    # each of these characters consists of several tokens
    assert tab.inner_text(".tokens.action") == "Action:\né漢"
    title = tab.locator(".tokens.action .token").first.get_attribute("title")
    assert "log-prob -0.5" in title and "advantage -0.25" in title and "KL 1" in title
    tab.select_option("#shade", "advantage")
    assert tab.locator(".tokens.action .token").first.get_attribute("class") == "token less"
    tab.select_option("#shade", "gap")
    assert "no learner log-probabilities" in tab.inner_text(".shade-legend")
    tab.select_option("#shade", "mask")
    assert (
        tab.locator(".tokens .token.sampled").count() == turn["action_stop"] - turn["action_start"]
    )
    assert tab.locator(".tokens .token.prompt").count() > 0
    tab.get_by_text("as a table").click()
    assert tab.locator(".table tbody tr").count() == turn["action_stop"] - turn["action_start"]


def test_values_that_are_not_finite_are_marked_and_interrupt_the_curve(open_page, make_run):
    values = {1: 0.5, 2: 0.4, 3: math.nan, 4: 0.3, 5: math.nan}
    metrics = {
        step: {"policy/entropy": value, "rollout/success": value, "policy/approx_kl": math.nan}
        for step, value in values.items()
    }
    tab = open_page(make_run({}, metrics))
    tab.locator("#metric").select_option("policy/entropy")
    chart = tab.locator(".picker .chart")
    assert chart.locator("path.nonfinite").count() == 2
    assert chart.locator("path.line:not(.nonfinite)").get_attribute("d").count("M") == 2
    assert "not finite at 2 steps" in chart.inner_text()
    said = chart.locator("svg").get_attribute("aria-label")
    assert "0.5 at step 1, 0.3 at step 4, not finite at 2 steps" in said
    width = chart.locator("svg").bounding_box()["width"]
    chart.locator("svg").hover(position={"x": width - 12, "y": 50})
    assert chart.locator(".readout").inner_text() == "step 5: policy/entropy not finite"
    assert "50 % → not finite" in tab.inner_text(".numbers")
    assert "not finite" in tab.locator(".level-alarm", has_text="Entropy").inner_text()
    # all values of this metric are infinite or NaN
    tab.locator("#metric").select_option("policy/approx_kl")
    assert chart.locator("path.nonfinite").count() == 5


def test_model_output_is_shown_and_never_executed(open_page, learning_run, hostile):
    tab = open_page(learning_run, "#episode=step_000002/1&turn=1")
    tab.wait_for_selector("#turn-1.current")
    assert hostile in tab.inner_text("#turn-1")
    for view in ("compare", "overview", "episodes"):
        tab.goto(f"{tab.url.partition('#')[0]}#{view}")
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("main img, main script").count() == 0


def test_the_same_task_is_shown_side_by_side(open_page, learning_run):
    tab = open_page(learning_run, "#compare")
    tab.wait_for_selector("table.compare")
    heads = tab.locator("table.compare thead th").all_inner_texts()
    assert "Evaluation 0" in heads[1] and "Evaluation 2" in heads[2]
    rows = tab.locator("table.compare tbody tr:not(.worlds)").all_inner_texts()
    assert "turn left" in rows[0] and "open the door" in rows[0] and "over" in rows[1]


def test_the_grid_of_a_replayed_episode_is_drawn(open_page, make_run, make_record):
    state = {"level": "Level", "grid": GRID, "position": [1, 1], "facing": "right", "moves": 0}
    state |= {"max_moves": 9, "carrying": None, "things": [[2, 2, "green key"]]}
    moved = state | {"grid": [GRID[0], "WG  >>WG", *GRID[2:]], "position": [2, 1], "moves": 1}
    moved |= {"walked": [[1, 2], [2, 2], [2, 1]]}
    run = make_run({"step_000001": [make_record() | {"worlds": [state, moved]}]})
    tab = open_page(run, "#episode=step_000001/0")
    label = tab.locator(".grid-world").get_attribute("aria-label")
    assert "column 1, row 1, facing right" in label and "green key" in label
    tab.keyboard.press("n")
    assert "column 2, row 1" in tab.locator(".grid-world").get_attribute("aria-label")
    path = tab.locator(".grid-world .way").get_attribute("d")
    assert path == "M1.5 1.5L1.5 2.5L2.5 2.5L2.5 1.5"  # through the cells that were entered
    assert tab.locator(".grid-world .wall").count() == 12
    assert tab.locator(".grid-world .thing.green").count() == 1


def test_a_state_of_an_older_run_is_drawn_from_its_letters(open_page, make_run, make_record):
    grid = ["WGWGWGWG", "WG>>__WG", "WGLRKGWG", "WGWGWGWG"]
    state = {"level": "Level", "grid": grid, "position": [1, 1], "facing": "right", "moves": 0}
    state |= {"max_moves": 9, "carrying": None}
    run = make_run({"step_000001": [make_record() | {"worlds": [state, state]}]})
    label = open_page(run, "#episode=step_000001/0").locator(".grid-world")
    assert "There are: grey open door, red locked door, green or grey key." in label.get_attribute(
        "aria-label"
    )


def test_the_agents_view_is_drawn_for_an_unknown_grid(open_page, make_run, make_record):
    opening = (
        "Your goal: open the red door\nIn front of you in this room, you can see several objects: "
        "There is a red closed door 1 3 steps in front of you and 2 steps to your left.  "
        "There is a grey key 1 right in front of you 2 steps away.  The room has walls around you. "
        'You are not carrying anything.\nAvailable actions: ["turn left"]'
    )
    run = make_run({"step_000001": [make_record(opening=opening)]})
    label = open_page(run, "#episode=step_000001/0").locator(".grid-world")
    assert "red closed door, 3 ahead, 2 to the left; grey key, 2 ahead" in label.get_attribute(
        "aria-label"
    )


def test_inventory_and_recipe_tree_follow_the_actions(open_page, make_run, make_record):
    turns = [
        ("get 1 oak log", "Got 1 oak log", 0.0),
        ("craft 4 oak planks using 1 oak log", "Crafted 4 minecraft:oak_planks", 0.0),
        ("get 1 stick", "Could not find stick", 0.0),
        ("craft 1 crafting table using 4 oak planks", "Crafted 1 minecraft:crafting_table", 1.0),
    ]
    record = make_record(item="textcraft_7", turns=turns, opening=RECIPES)
    tab = open_page(make_run({"step_000001": [record]}), "#episode=step_000001/0")
    held = []
    for _ in range(5):
        found = tab.locator(".inventory")
        held.append(found.inner_text() if found.count() else "")
        tab.keyboard.press("n")
    assert held == ["", "1× oak log", "4× oak planks", "4× oak planks", "1× crafting table"]
    needs = tab.locator(".tree .need").all_inner_texts()
    assert "1 crafting table held" in needs[0]
    assert "4 planks (such as oak planks) had" in needs[1] and "1 oak log had" in needs[2]


def test_rooms_are_drawn_once_they_were_seen(open_page, make_run, make_record):
    turns = [
        ("open door to hallway", "The door is now open.", 0.0),
        ("go to hallway", "You move to the hallway.", 0.0),
    ]
    record = make_record(item="sciworld_3", turns=turns, opening=ROOM)
    tab = open_page(make_run({"step_000001": [record]}), "#episode=step_000001/0")
    rooms = tab.locator(".rooms")
    assert "agent is in the kitchen. Visited: kitchen." in rooms.get_attribute("aria-label")
    assert "a stove" in tab.inner_text(".things")
    assert tab.locator(".passage.open").count() == 0
    tab.keyboard.press("n")
    assert tab.locator(".passage.open").count() == 1
    tab.keyboard.press("n")
    assert "agent is in the hallway. Visited: kitchen, hallway." in rooms.get_attribute(
        "aria-label"
    )


def test_a_door_that_no_text_has_mentioned_leads_to_a_room(open_page, make_run, make_record):
    turns = [
        ("go to hallway", "You move to the hallway.", 0.0),
        ("open door to Art Studio", "The art studio door is now open.", 0.0),
        ("close door to constructor", "The door is now closed.", 0.0),
    ]
    record = make_record(item="sciworld_3", turns=turns, opening=ROOM)
    tab = open_page(make_run({"step_000001": [record]}), "#episode=step_000001/0&turn=3")
    names = tab.locator(".rooms .room text").all_text_contents()
    assert names == ["kitchen", "hallway", "art studio", "constructor"]
    assert tab.locator(".passage.open").count() == 1


def picture(width, kind):
    """Returns a picture of one colour as a data URI."""
    data = io.BytesIO()
    PIL.Image.new("RGB", (width, 8), "teal").save(data, kind)
    return f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}"


def test_web_pages_are_shown_with_their_screenshots(open_page, make_run, make_record):
    """Checks how the viewer shows states in the format of the web environment."""
    task = {"data_idx": 3, "objective": "Buy <b>tea</b>", "sites": ["shopping"]}
    first = task | {"url": "http://shop.test/", "title": "Shop", "tabs": ["Shop", "Maps"]}
    first |= {"page": "[1] RootWebArea '<b>Basket</b>'", "dialogs": [], "checks": []}
    last = first | {"url": "http://shop.test/tea", "title": "Tea", "tabs": ["Tea", "Maps"]}
    worlds = [
        first | {"screenshot": picture(30, "png")},
        last | {"screenshot": picture(40, "jpeg"), "checks": ["url_match: holds"]},
    ]
    run = make_run({"step_000001": [make_record(item="webarena_3") | {"worlds": worlds}]})
    tab = open_page(run, "#episode=step_000001/0")
    image = tab.locator(".screenshot")
    assert image.get_attribute("alt") == "Screenshot of Shop"
    assert image.evaluate("e => e.decode().then(() => e.naturalWidth)") == 30
    assert "'<b>Basket</b>'" in tab.inner_text("pre.page")
    assert tab.inner_text(".world .url") == "Shop · http://shop.test/"
    facts = tab.inner_text(".world .facts")
    assert "Buy <b>tea</b>" in facts and "Shop, Maps" in facts and "dialogs" not in facts
    tab.keyboard.press("n")
    assert tab.inner_text(".world .url") == "Tea · http://shop.test/tea"
    assert image.evaluate("e => e.decode().then(() => e.naturalWidth)") == 40
    assert "url_match: holds" in tab.inner_text(".world .facts")


def test_an_address_of_a_state_is_never_opened(open_page, make_run, make_record):
    state = {"url": "javascript:alert(1)", "other": "data:image/gif;base64,R0lGODlhAQABAAAAACw="}
    elsewhere = state | {"screenshot": "http://elsewhere.test/x.png"}
    script = state | {"screenshot": "data:text/html;base64,PHNjcmlwdD4="}
    record = make_record(item="webarena_1") | {"worlds": [elsewhere, script]}
    tab = open_page(make_run({"step_000001": [record]}), "#episode=step_000001/0")
    for _ in range(2):
        assert "javascript:alert(1)" in tab.inner_text(".world .url")
        assert tab.locator(".world img").count() == tab.locator(".world a").count() == 0
        tab.keyboard.press("n")


def test_a_text_drawing_can_be_reached_by_keyboard(open_page, make_run, make_record):
    state = {"goal": [8, 6], "position": [1, 2], "moves": 0, "grid": ["###", "#P#", "###"]}
    record = make_record(item="maze_1") | {"worlds": [state, state | {"position": [1, 3]}]}
    tab = open_page(make_run({"step_000001": [record]}), "#episode=step_000001/0")
    drawing = tab.get_by_role("region", name="Drawing of the world")
    assert drawing.inner_text() == "###\n#P#\n###" and drawing.get_attribute("tabindex") == "0"
    assert "1, 2" in tab.inner_text(".world .facts")
    tab.keyboard.press("n")
    assert "1, 3" in tab.inner_text(".world .facts")


def test_the_colours_can_be_chosen(open_page, learning_run):
    tab = open_page(learning_run)
    background = "getComputedStyle(document.body).backgroundColor"
    tab.emulate_media(color_scheme="dark")
    dark = tab.evaluate(background)
    tab.emulate_media(color_scheme="light")
    light = tab.evaluate(background)
    assert dark != light
    tab.keyboard.press("t")
    assert tab.get_by_role("button", name="Light colours").is_visible()
    tab.keyboard.press("t")
    assert tab.evaluate(background) == dark


def test_everything_can_be_reached_without_a_mouse(open_page, learning_run):
    tab = open_page(learning_run, "#episode=step_000001/0")
    tab.wait_for_selector(".turn")
    reached = set()
    for _ in range(40):
        tab.keyboard.press("Tab")
        reached.add(
            tab.evaluate(
                "document.activeElement.id || document.activeElement.name || document.activeElement.tagName"
            )
        )
    assert {"skip", "theme", "help", "filter-text", "outcome", "episode-list", "shade"} <= reached
    unnamed = tab.evaluate(
        "[...document.querySelectorAll('button, select, input, a, [role=img]')].filter(e => !(e.innerText || "
        "e.getAttribute('aria-label') || e.title || (e.labels && e.labels.length))).length"
    )
    assert unnamed == 0


def test_a_page_follows_a_run_in_progress(tab, learning_run, make_record):
    with LiveServer(LiveRun(RunFolder(learning_run), {}), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        tab.goto(f"{server.url}#episode=step_000001/0&turn=1")
        tab.wait_for_selector("#turn-1.current")
        path = learning_run / "trajectories" / "step_000003.jsonl"
        path.write_text(json.dumps(make_record()) + "\n")
        expect(tab.locator(".count")).to_have_text("7 of 7 episodes")
        tab.wait_for_selector("#turn-1.current")  # the selected turn does not change
        server.shutdown()
        thread.join()
        tab.goto("about:blank")


def test_an_episode_shows_its_credits_and_the_command_of_a_replay(open_page, learning_run):
    (learning_run / "replays").mkdir()
    turns = [{"turn": 1, "credit": 0.5}, {"turn": 2, "credit": -0.25}, {"turn": 3, "credit": 0.0}]
    document = {"episode": "step_000001/1", "turns": turns}
    (learning_run / "replays" / "step_000001_1.json").write_text(json.dumps(document))
    tab = open_page(learning_run, "#episode=step_000001/1")
    tab.wait_for_selector("#turn-1")
    assert "credit +0.5" in tab.inner_text("#turn-1") and "credit -0.25" in tab.inner_text(
        "#turn-2"
    )
    command = tab.locator(".replay input")
    assert command.input_value().endswith("--episode=step_000001/1 --every_turn")
    tab.keyboard.press("n")
    tab.keyboard.press("n")
    expect(command).to_have_value(re.compile("--episode=step_000001/1 --turn=2 --branches=8$"))
    tab.select_option("#shade", "credit")
    assert "lowers it" in tab.inner_text(".shade-legend")
    tab.goto(tab.url.partition("#")[0] + "#episode=step_000001/0")
    tab.wait_for_selector("#turn-1")
    expect(tab.locator(".shade-legend")).to_contain_text("has not been replayed")
