"""Tasks for the customer who is logged in to the shop. Those of this module read the shop or open one
of its pages.
"""

import re
from collections.abc import Generator

from agentgym_sites.shop.tables import Order, Product, Review, category_path, tables
from agentgym_sites.shop.words import SHELVES, Shelf
from agentgym_sites.tasks import script, shopping_writing
from agentgym_sites.tasks import shopping_edits as edits
from agentgym_sites.tasks.script import (
    Node,
    Play,
    Reader,
    answering,
    click,
    doing,
    fill,
    in_order,
    labelled,
    value_after,
)
from agentgym_sites.tasks.shopping_plays import (
    PER_TEMPLATE,
    SHOP,
    days_of,
    dice,
    dollars,
    first_of_shelf,
    open_account,
    open_basket,
    open_order,
    open_product,
    price_on,
    put_in_basket,
    some_products,
    sort_shelf,
)
from agentgym_sites.tasks.task import (
    EmbeddedTask,
    Row,
    Rows,
    Templates,
    all_of,
    answer_has,
    answer_is,
    changes,
    ends_at,
    impossible,
    refusing,
)

_FOUR_DIGITS = 100_000  # limit in cents, because pages show larger sums with a comma
_SUM = r"\$[\d,.]+"
_TEMPLATES = Templates(edits.SITE)


def tasks() -> list[EmbeddedTask]:
    """Returns all tasks in the shop."""
    return _TEMPLATES.tasks() + shopping_writing.TEMPLATES.tasks()


def _shelves(name: str) -> list[Shelf]:
    return dice(name).sample(SHELVES, PER_TEMPLATE)


def _orders(name: str) -> list[Order]:
    shop = tables()
    cheap = [order for order in shop.orders_of(shop.customer) if order.cents < _FOUR_DIGITS]
    return dice(name).sample(cheap, PER_TEMPLATE)


# Tasks that ask about products.


def _read_price(product: Product) -> Reader:
    def read(page: list[Node]) -> str:
        return dollars(price_on(page, product))

    return read


@_TEMPLATES(0, "What does the {product} cost in dollars?")
def _price() -> Rows:
    for product in some_products("price", 5):
        play = answering(open_product(product), _read_price(product), in_sight=True)
        yield {"product": product.title}, answer_has(product.price), play


@_TEMPLATES(1, 'What is given as "{attribute}" for the {product}?')
def _attribute() -> Rows:
    for index, product in enumerate(some_products("attribute", 8)):
        name, value = product.attributes[2 + index % 4]
        values = {"attribute": name, "product": product.title}
        yield values, answer_has(value), answering(open_product(product), labelled(name))


def _name_first(shelf: Shelf, order: str) -> Play:
    def play(seen: str) -> Generator[str, str, None]:
        title = yield from first_of_shelf(shelf, order)(seen)
        yield script.stop(title)

    return play


_EXTREME = "Which product in the category {{category}} is the {}? Answer with its full name."


@_TEMPLATES(2, _EXTREME.format("cheapest"))
def _cheapest() -> Rows:
    order = "Price low to high"
    for shelf in _shelves(order):
        product = min(tables().shelf_products(shelf.name), key=lambda p: p.cents)
        yield {"category": shelf.name}, answer_has(product.title), _name_first(shelf, order)


@_TEMPLATES(3, _EXTREME.format("most expensive"))
def _dearest() -> Rows:
    order = "Price high to low"
    for shelf in _shelves(order):
        product = max(tables().shelf_products(shelf.name), key=lambda p: p.cents)
        yield {"category": shelf.name}, answer_has(product.title), _name_first(shelf, order)


# Tasks that ask about orders, reviews and pages of text.


def _ask_order(order: Order, label: str, value: str) -> Row:
    read = labelled(label, "cell|StaticText")
    return {"order": order.number}, answer_has(value), answering(open_order(order), read)


@_TEMPLATES(4, "What was the total of my order {order}, in dollars?")
def _order_total() -> Rows:
    for order in _orders("total"):
        yield _ask_order(order, "Order total", order.total)


@_TEMPLATES(5, "What is the status of my order {order}?")
def _order_status() -> Rows:
    for order in _orders("status"):
        yield _ask_order(order, "Status", order.status)
    shop = tables()
    strange = [order for order in shop.orders if order.customer is not shop.customer]
    for order in dice("others").sample(strange, 4):
        yield {"order": order.number}, impossible(), refusing(open_order(order))


def _read_sum(page: list[Node]) -> str:
    cells = [node.name for node in page if node.role == "cell"]
    sums = [dollars(cell).replace(",", "") for cell in cells if re.fullmatch(_SUM, cell)]
    return f"{sum(map(float, sums)):.2f}"


@_TEMPLATES(
    6,
    "How much did I spend in this shop in {month} in all, in dollars? Count every order, "
    "whatever became of it.",
)
def _spending() -> Rows:
    shop = tables()
    for month in ((2023, 5), (2023, 9), (2023, 12), (2024, 1), (2023, 7), (2023, 10)):
        first, last = days_of(*month)
        orders = [o for o in shop.orders_of(shop.customer) if first <= o.placed.date() <= last]
        cents = sum(order.cents for order in orders)
        if not 0 < cents < _FOUR_DIGITS:
            continue
        way = in_order(
            open_account("Order History"),
            fill("From", first.isoformat()),
            fill("To", last.isoformat(), enter=True),
        )
        values = {"month": first.strftime("%B %Y")}
        yield values, answer_has(f"{cents / 100:.2f}"), answering(way, _read_sum)


def _read_reviewer(review: Review) -> Reader:
    def read(page: list[Node]) -> str:
        places = (i for i, node in enumerate(page) if node.name == review.title)
        start = script.first(places, review.title)
        return value_after(page[start:], "Reviewed by", "StaticText")

    return read


@_TEMPLATES(7, 'Who wrote the review "{title}" of the {product}?')
def _reviewer() -> Rows:
    shop = tables()
    clear = [  # reviews whose title no other review of the product has
        review
        for review in shop.reviews
        if review.is_approved
        and sum(other.title == review.title for other in shop.reviews_of(review.product)) == 1
    ]
    for review in dice("reviewer").sample(clear, PER_TEMPLATE):
        values = {"product": review.product.title, "title": review.title}
        play = answering(open_product(review.product), _read_reviewer(review))
        yield values, answer_has(review.customer.name), play
    (product,) = some_products("no review", 1)
    values = {"product": product.title, "title": "Squeaks in the rain"}
    yield values, impossible(), refusing(open_product(product))


_FACTS = (
    ("within how many days I may send things back", "Returns", r"within (\d+) days", "45"),
    ("what the phone number of the shop is", "Contact", r"call (\S+)", "555-0142"),
    ("since which year the shop exists", "About us", r"since (\d+)", "2014"),
    ("within how many working days parcels leave", "Delivery", r"within (\d+) working", "2"),
)


def _read_text(pattern: str) -> Reader:
    def read(found: list[Node]) -> str:
        text = " ".join(node.name for node in found)
        match = re.search(pattern, text)
        if match is None:
            raise script.ScriptError(f"{pattern} is not in {text}")
        return match[1]

    return read


@_TEMPLATES(8, "Find out from the pages of the shop {question}.")
def _on_a_page() -> Rows:
    for question, page, pattern, answer in _FACTS:
        # The pages of text are short, so the first observation has the answer.
        play = answering(open_account(page), _read_text(pattern), in_sight=True)
        yield {"question": question}, answer_has(answer), play


# Tasks that ask to find a page.

_ORDERS = (
    ("price, highest first", "Price high to low", "price-desc"),
    ("title, from A to Z", "Title A to Z", "title-asc"),
    ("customer rating", "Customer rating", "rating"),
    ("price, lowest first", "Price low to high", "price-asc"),
)


@_TEMPLATES(9, "Show me the category {category} sorted by {order}.")
def _shelf_page() -> Rows:
    for shelf, (words, option, key) in zip(_shelves("page"), _ORDERS, strict=True):
        check = ends_at(f"{SHOP}{category_path(shelf)}?sort_by={key}")
        values = {"category": shelf.name, "order": words}
        yield values, check, doing(sort_shelf(shelf=shelf, order=option))


@_TEMPLATES(10, "Open the page of the product with the UPC {upc}.")
def _product_page() -> Rows:
    for product in some_products("page"):
        play = doing(fill("Search", product.upc, enter=True), click("link", product.title))
        yield {"upc": product.upc}, ends_at(SHOP + product.path), play


# Tasks that ask for sums and counts.


@_TEMPLATES(
    24,
    "Put the {product} into my basket and tell me what everything in it costs together, in "
    "dollars.",
)
def _basket_total() -> Rows:
    # The basket already has other products, so the price of the product alone is not the answer.
    before = sum(each.cents * count for each, count in tables().basket)
    products = some_products("total", 8, stock=7)
    indoors = [product for product in products if product.shelf.department != "Garden"]
    for product in indoors[:PER_TEMPLATE]:
        total = f"{(before + product.cents) / 100:.2f}"
        check = all_of(answer_has(total), changes(edits.in_basket(product, 1)))
        way = in_order(put_in_basket(product), open_basket())
        yield {"product": product.title}, check, answering(way, labelled("Order total"))


@_TEMPLATES(
    25, "How many reviews by customers does the {product} have? Answer with the number only."
)
def _count_reviews() -> Rows:
    for product in some_products("count"):
        count = len(tables().reviews_of(product))
        play = answering(open_product(product), labelled("Number of reviews"))
        yield {"product": product.title}, answer_is(str(count)), play
