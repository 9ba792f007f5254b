"""WebShop: pages, search, reward, expert, the embedded catalogue and WebShop's data files."""

import dataclasses
import json
import random

import pytest

from agentgym_envs.base.environment import EnvironmentFault, SetupError
from agentgym_envs.base.in_process import InProcessServer
from agentgym_envs.webshop.catalogue import Product, embedded_products
from agentgym_envs.webshop.goals import Goal, embedded_goals, reward
from agentgym_envs.webshop.search import SearchEngine
from agentgym_envs.webshop.served import MAX_TURNS, make_served_environment
from tests.envs.playing import play_expert, started

SERVED = make_served_environment()
MUG = 37  # a task with one option


def playing(data_idx, *actions):
    environment = SERVED.factory()
    environment.reset(data_idx)
    for action in actions:
        environment.step(action)
    return environment


def page(environment):
    return environment.episode.page.text.split(" [SEP] ")


# Pages


def test_a_purchase_leads_over_the_pages_of_webshop():
    shop = SERVED.factory()
    first = shop.reset(MUG).observation.split(" [SEP] ")
    wish = shop.episode.goal.instruction
    assert first == ["WebShop", "Instruction:", wish, "Search"]
    found = shop.step("search[fennick yarrow mug]").observation.split(" [SEP] ")
    head = ["Instruction:", wish, "Back to Search"]
    assert found[:5] == [*head, "Page 1 (Total results: 41)", "Next >"]
    assert len(found) == 5 + 10 * 3
    assert found[5:8] == ["NG0013", "Fennick Yarrow Mug", "$14.81"]
    item = shop.step("click[NG0013]").observation.split(" [SEP] ")
    assert item[:5] == [*head, "< Prev", "colour"]
    assert item[-7:] == [
        "Fennick Yarrow Mug",
        "Price: $14.81",
        "Rating: N.A.",
        "Description",
        "Features",
        "Reviews",
        "Buy Now",
    ]
    features = shop.step("click[features]").observation.split(" [SEP] ")
    assert features[3:7] == ["< Prev", "Material: enamel", "Made in japan", "Brand: Fennick"]
    assert shop.step("click[< prev]").observation.split(" [SEP] ") == item
    # as in WebShop, a choice is not visible, but it counts
    assert shop.step("click[red]").observation.split(" [SEP] ") == item
    assert shop.state()["options"] == {"colour": "red"}
    last = shop.step("Click[Buy Now]")
    assert (last.reward, last.score, last.done) == (1, 1, True)
    assert last.observation.endswith("Your score (min 0.0, max 1.0) [SEP] 1.0")
    with pytest.raises(EnvironmentFault, match="over"):
        shop.step("search[mug]")


def test_results_have_pages_and_a_new_search_forgets_the_choice():
    shop = playing(MUG, "search[mug]", "click[next >]")
    assert page(shop)[3:6] == ["Page 2 (Total results: 14)", "< Prev", "NG0025"]
    assert "next >" not in shop.available_actions()["clickables"]
    shop = playing(MUG, "search[mug]", "click[ng0001]", "click[red]", "click[< prev]")
    assert page(shop)[3] == "Page 1 (Total results: 14)"
    assert shop.state()["options"] == {}
    shop.step("click[back to search]")
    assert shop.available_actions() == {"has_search_bar": True, "clickables": ["search"]}


HOSTILE = ["", "buy", "click[]", "click[ng0001]", "click[buy now]", "search[]", "click[search]"]
HOSTILE += ["search", "]click[", "\0", "click[" * 500, "click[instruction:]", "é☃"]


@pytest.mark.parametrize("action", HOSTILE)
def test_impossible_actions_show_the_same_page(action):
    shop = playing(MUG)
    result = shop.step(action)
    assert result.observation == SERVED.factory().reset(MUG).observation
    assert (result.reward, result.done) == (0, False)


@pytest.mark.parametrize("page_of", ["search[mug]", "click[ng0001]", "click[description]"])
def test_texts_that_cannot_be_clicked_show_the_same_page(page_of):
    way = ["search[mug]", "click[ng0001]", "click[description]"]
    shop = playing(MUG, *way[: way.index(page_of) + 1])
    before = page(shop)
    for text in ("ng9999", "no such colour", "mug", "< PREV >", "instruction:"):
        assert not shop.step(f"click[{text}]").done
        assert page(shop) == before


@pytest.mark.parametrize("words", ["%", "[SEP]", ".*", "zzz", "x " * 4000])
def test_odd_searches_are_answered(words):
    shop = playing(MUG, f"search[{words}]")
    assert page(shop)[3].startswith("Page 1 (Total results: ")


def test_search_prefers_rare_words_and_short_texts():
    engine = SearchEngine(["a red mug", "a blue mug", "a red mug with a lid and a box", "a pan"])
    assert engine.search("red mugs", 9) == [0, 2, 1]
    assert engine.search("mug pan", 2) == [3, 0]
    assert engine.search("unknown", 9) == []


# Reward

SHOE = Product(
    asin="A1",
    title="Light Running Shoe",
    query="running shoes",
    categories=("Sport", "Shoes"),
    price=25.0,
    price_tag="$25.00",
    options={"colour": ("red", "blue"), "size": ("9", "10")},
    attributes=("breathable", "rubber sole"),
    features=("Machine washable",),
    description="For long ways.",
)
GOAL = Goal(
    SHOE, "", ("rubber sole", "machine washable"), {"colour": "red", "size": "9"}, 30, False
)
OTHER = {"query": "x", "categories": ("Sport",)}


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        ({}, {"colour": "red", "size": "9"}, 1),
        ({}, {"colour": "red"}, 4 / 5),
        ({}, {}, 3 / 5),
        ({"price": 30.01}, {"colour": "red", "size": "9"}, 4 / 5),
        ({"attributes": ()}, {"colour": "red", "size": "9"}, 4 / 5),
        ({"title": "Heavy Boot", "features": ()}, {}, 0),
        ({"title": "Shoe", **OTHER}, {"colour": "red", "size": "9"}, 0.5),  # a third of the words
        ({"title": "Boot", "query": "x"}, {"colour": "red", "size": "9"}, 0),
    ],
)
def test_the_reward_is_the_share_of_the_wishes_times_the_type(change, options, expected):
    assert reward(GOAL, dataclasses.replace(SHOE, **change), options) == pytest.approx(expected)


def test_a_product_of_another_kind_that_shares_few_words_is_worth_half():
    long = dataclasses.replace(SHOE, title="one two three four five Shoe")
    goal = dataclasses.replace(GOAL, product=long)
    bought = dataclasses.replace(SHOE, title="Shoe", **OTHER)
    chosen = {"colour": "red", "size": "9"}
    assert reward(goal, bought, chosen) == 0.5  # one word of six
    assert reward(goal, dataclasses.replace(bought, query="running shoes"), chosen) == 1
    longer = dataclasses.replace(SHOE, title=f"{long.title} seven eight nine ten eleven")
    assert reward(dataclasses.replace(goal, product=longer), bought, chosen) == 0.1  # one of eleven
    # a third of the words, which WebShop's titles have only in common with products of the same kind
    assert reward(dataclasses.replace(GOAL, is_fuzzy=True), bought, chosen) == 1


def test_no_product_of_another_kind_solves_an_embedded_task():
    for goal in embedded_goals(embedded_products())[::7]:
        for product in embedded_products():
            if product.query != goal.product.query:
                assert reward(goal, product, goal.options) <= 0.5


def test_similar_texts_are_equal_only_in_webshops_data():
    wish = dataclasses.replace(GOAL, options={"colour": "dark red"}, attributes=("rubber soles",))
    chosen = {"colour": "red"}
    assert reward(wish, SHOE, chosen) == pytest.approx(1 / 3)
    assert reward(dataclasses.replace(wish, is_fuzzy=True), SHOE, chosen) == 1
    far = dataclasses.replace(wish, is_fuzzy=True, options={"colour": "green"})
    assert reward(far, SHOE, chosen) == pytest.approx(2 / 3)


# Tasks and expert


def test_tasks_are_split_by_products():
    tasks = SERVED.tasks()
    products = [
        {task["product"] for task in tasks if task["split"] == split} for split in ("train", "test")
    ]
    assert list(map(len, products)) == [190, 34]
    assert not products[0] & products[1]


@pytest.mark.parametrize("data_idx", range(5, 1344, 84))  # one task of each kind of product
def test_the_expert_buys_what_fits_from_any_state(data_idx):
    shop = playing(data_idx)
    rng = random.Random(data_idx)
    for _ in range(rng.randrange(12)):
        choices = [action for action in shop.valid_actions() if action != "click[buy now]"]
        shop.step(rng.choice(choices))
    result, _ = play_expert(shop, MAX_TURNS)
    assert (result.reward, result.done) == (1, True)


def test_looking_around_is_worth_nothing():
    shop = playing(MUG)
    results = [shop.step("search[mug]") for _ in range(MAX_TURNS)]
    assert not any(result.reward or result.done for result in results)


def test_answers_have_the_fields_of_agentgyms_server():
    server = InProcessServer(SERVED)

    def call(method, target, **body):
        status, content = server.exchange(method, target, body)
        return status, json.loads(content)

    assert call("GET", "/") == (200, "ok")
    assert call("POST", "/create") == (200, 0)
    assert call("GET", "/list_envs") == (200, [0])
    text = SERVED.factory().reset(MUG).observation
    assert call("POST", "/reset", env_idx=0, session_id=MUG) == (200, [text, None])
    assert call("GET", "/observation?env_idx=0") == (200, text)
    assert call("GET", "/instruction_text?env_idx=0") == (200, text.split(" [SEP] ")[2])
    available = {"has_search_bar": True, "clickables": ["search"]}
    assert call("GET", "/available_actions?env_idx=0") == (200, available)
    expected = {"state": text, "reward": 0.0, "done": False, "info": None}
    assert call("POST", "/step", env_idx=0, action="fly") == (200, expected)
    assert call("POST", "/reset", env_idx=0, session_id=1344)[1]["type"] == "unknown_task"
    assert call("POST", "/close", env_idx=0) == (200, True)
    server.close()


# WebShop's data files


def row(asin, name, **fields):
    return {
        "asin": asin,
        "name": name,
        "query": " Shoes ",
        "product_category": "Clothing › Shoes",
        "pricing": "$25.00",
        "small_description": ["soft"],
        "full_description": "A shoe.",
        "customization_options": None,
    } | fields


@pytest.fixture
def data(tmp_path):
    colours = {"Color": [{"value": " Red/Blue "}, {"value": "Green"}], "Size": None}
    rows = [
        row("B1", "Light Shoe", customization_options=colours),
        row("B1", "twice"),
        row("B2", "Boot", pricing="$1,000.00 to $2,000.50", small_description="hard"),
        row("B3", "Sandal", pricing=None),
    ]
    known = {
        "B1": {
            "attributes": ["soft"],
            "instruction": "Find shoes",
            "instruction_attributes": ["soft"],
        },
        "B2": {
            "attributes": ["x"],
            "instruction": "Find a boot",
            "instruction_attributes": ["hard"],
        },
        "B3": {"attributes": ["x"], "instruction": None},
    }
    (tmp_path / "items_shuffle.json").write_text(json.dumps(rows))
    (tmp_path / "items_ins_v2.json").write_text(json.dumps(known))
    return tmp_path


def test_the_data_files_of_webshop_are_served(data):
    served = make_served_environment(data=str(data))
    wishes = sorted(task["instruction"] for task in served.tasks())
    assert wishes[0] == "Find a boot"  # too expensive for a price limit
    assert wishes[1].startswith("Find shoes with color: green, and price lower than ")
    assert wishes[2].startswith("Find shoes with color: red | blue, and price lower than ")
    for data_idx in range(3):
        result, _ = play_expert(started(served.factory, data_idx), MAX_TURNS)
        assert result.reward == 1


def test_missing_and_wrong_data_files_are_errors(data):
    (data / "items_ins_v2.json").write_text("{}")
    with pytest.raises(SetupError, match="no product in .* has an instruction"):
        make_served_environment(data=str(data))
    (data / "items_ins_v2.json").write_text("{")
    make_served_environment()  # another shop in between, because the last one is kept
    with pytest.raises(SetupError, match="items_ins_v2.json is no JSON"):
        make_served_environment(data=str(data))
    (data / "items_shuffle.json").write_text('[{"asin": "B1"}]')
    (data / "items_ins_v2.json").write_text("{}")
    with pytest.raises(SetupError, match="unexpected data in .*: KeyError"):
        make_served_environment(data=str(data))
    (data / "items_shuffle.json").unlink()
    with pytest.raises(SetupError, match="has neither items_shuffle_1000.json nor"):
        make_served_environment(data=str(data))
