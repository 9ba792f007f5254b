"""Tasks for which the agent uses both the shop and the forum.

Each site has one tab. The agent enters facts from one site on the other site.
"""

from collections import Counter
from collections.abc import Callable, Generator

from agentgym_envs.webarena.tasks import Evaluation, ShortText
from agentgym_sites.chance import Dice
from agentgym_sites.forum.tables import Topic, topics
from agentgym_sites.shop.tables import Product, tables
from agentgym_sites.shop.words import SHELVES
from agentgym_sites.tasks import script
from agentgym_sites.tasks.forum_plays import open_topic, says
from agentgym_sites.tasks.script import Play, Script, Way, click, doing, fill, in_order
from agentgym_sites.tasks.shopping_admin_plays import open_menu
from agentgym_sites.tasks.shopping_edits import in_basket
from agentgym_sites.tasks.shopping_plays import (
    first_of_shelf,
    open_product,
    price_on,
    put_in_basket,
)
from agentgym_sites.tasks.task import (
    Rows,
    Templates,
    changes,
    impossible,
    refusing,
)

_TEMPLATES = Templates("across")
tasks = _TEMPLATES.tasks
_SHOP = ("shopping", "reddit")
_DASHBOARD = ("shopping_admin", "reddit")
_NO_PRODUCT = "Larchmont Copper Birdbath, Round"
_MOST_COMMENTS = 8  # maximum number of comments of a topic, so that the topic's page is short
# generator that yields actions, receives observations and returns the fact that it found
_Found = Generator[str, str, str]


def _topics(name: str, count: int) -> list[Topic]:
    short = [topic for topic in topics() if len(topic.comments) <= _MOST_COMMENTS]
    return Dice(f"across {name}").sample(short, count)


def _products(name: str, count: int) -> list[Product]:
    taken = {product for product, _ in tables().basket}
    free = [p for p in tables().products if p.stock > 5 and p not in taken]
    return Dice(f"across {name}").sample(free, count)


def _to_forum(_seen: str) -> Script:
    return (yield "tab_focus [1]")


def _reply(topic: Topic, text: str) -> Way:
    return in_order(
        open_topic(topic.title), fill("Write comment...", text), click("button", "Publish")
    )


def _replied(topic: Topic, text: str) -> Evaluation:
    """Returns an evaluation that requires a new comment: the text, or a short sentence with the
    text.
    """
    return changes(says(topic.title, ShortText(text)))


def _telling(find: Callable[[str], _Found], topic: Topic) -> Play:
    """Returns a `Play` that finds a fact in the first tab and writes it in a topic."""

    def play(seen: str) -> Script:
        text = yield from find(seen)
        seen = yield from _to_forum(seen)
        seen = yield from _reply(topic, text)(seen)
        return (yield script.stop())

    return play


def _finding_price(product: Product) -> Callable[[str], _Found]:
    def run(seen: str) -> _Found:
        seen = yield from open_product(product)(seen)
        return price_on(script.nodes(seen), product)

    return run


@_TEMPLATES(
    0,
    "Find out what the {product} costs in the shop, and reply with the price, like $12.34, to "
    'the topic "{topic}" in the forum.',
    _SHOP,
)
def _price() -> Rows:
    for product, topic in zip(_products("price", 4), _topics("price", 4), strict=True):
        check = _replied(topic, f"${product.price}")
        values = {"product": product.title, "topic": topic.title}
        yield values, check, _telling(_finding_price(product), topic)
    (topic,) = _topics("no price", 1)
    play = refusing(fill("Search", _NO_PRODUCT, enter=True))
    yield {"product": _NO_PRODUCT, "topic": topic.title}, impossible(), play


@_TEMPLATES(
    1,
    "Which product in the category {category} of the shop is the cheapest? Reply with its full "
    'name to the topic "{topic}" in the forum.',
    _SHOP,
)
def _cheapest() -> Rows:
    shelves = Dice("across shelves").sample(SHELVES, 4)
    for shelf, topic in zip(shelves, _topics("cheapest", 4), strict=True):
        product = min(tables().shelf_products(shelf.name), key=lambda p: p.cents)
        play = _telling(first_of_shelf(shelf, "Price low to high"), topic)
        values = {"category": shelf.name, "topic": topic.title}
        yield values, _replied(topic, product.title), play


def _finding_count(status: str) -> Callable[[str], _Found]:
    def run(seen: str) -> _Found:
        seen = yield from open_menu("Fulfilment", "Statistics")(seen)
        found = yield from script.read_page(seen)
        return f"{script.value_after(found, status, 'cell')} orders"

    return run


@_TEMPLATES(
    2,
    'Find out in the dashboard of the shop how many orders have the status "{status}", and tell '
    'it in a reply to the topic "{topic}" in the forum, in the form: 12 orders',
    _DASHBOARD,
)
def _orders() -> Rows:
    counts = sorted(Counter(order.status for order in tables().orders).items())
    for (status, count), topic in zip(counts, _topics("orders", 4), strict=True):
        play = _telling(_finding_count(status), topic)
        yield {"status": status, "topic": topic.title}, _replied(topic, f"{count} orders"), play


@_TEMPLATES(
    3,
    "Put the {product} into my basket in the shop, and reply to the topic "
    '"{topic}" in the forum: I am getting the {product}',
    _SHOP,
)
def _announce() -> Rows:
    for product, topic in zip(_products("announce", 4), _topics("announce", 4), strict=True):
        text = f"I am getting the {product.title}"
        check = changes(in_basket(product, 1), says(topic.title, ShortText(text)))
        play = doing(put_in_basket(product), _to_forum, _reply(topic, text))
        yield {"product": product.title, "topic": topic.title}, check, play
