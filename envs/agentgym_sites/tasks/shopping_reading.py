"""Tasks that read the shop or open one of its pages, with one function per template."""

import datetime
import re
from collections.abc import Callable, Generator

from agentgym_sites.shop.tables import Order, Product, Review, category_path, tables
from agentgym_sites.shop.words import Shelf
from agentgym_sites.tasks import script
from agentgym_sites.tasks import shopping_edits as edits
from agentgym_sites.tasks.script import (
    Node,
    answering,
    click,
    doing,
    fill,
    in_order,
    labelled,
    value_after,
)
from agentgym_sites.tasks.shopping_plays import (
    SHOP,
    dollars,
    first_of_shelf,
    open_account,
    open_basket,
    open_order,
    open_product,
    price_on,
    put_in_basket,
    sort_shelf,
)
from agentgym_sites.tasks.task import (
    Instance,
    all_of,
    answer_has,
    answer_is,
    changes,
    ends_at,
    impossible,
    refusing,
)

_SUM = r"\$[\d,.]+"


def price(product: Product) -> Instance:
    """Returns a task that asks for the price of a product."""

    def read(page: list[Node]) -> str:
        return dollars(price_on(page, product))

    return Instance(
        {"product": product.title},
        answer_has(product.price),
        answering(open_product(product), read, in_sight=True),
    )


def attribute(product: Product, name: str, value: str) -> Instance:
    """Returns a task that asks for an attribute in the table below a product."""
    read = labelled(name)
    return Instance(
        {"attribute": name, "product": product.title},
        answer_has(value),
        answering(open_product(product), read),
    )


def extreme(shelf: Shelf, order: str, pick: Callable) -> Instance:
    """Returns a task that asks for the cheapest or the most expensive product in a category."""

    def play(seen: str) -> Generator[str, str, None]:
        title = yield from first_of_shelf(shelf, order)(seen)
        yield script.stop(title)

    product = pick(tables().shelf_products(shelf.name), key=lambda p: p.cents)
    return Instance({"category": shelf.name}, answer_has(product.title), play)


def _order_fact(order: Order, label: str, value: str) -> Instance:
    read = labelled(label, "cell|StaticText")
    return Instance({"order": order.number}, answer_has(value), answering(open_order(order), read))


def order_total(order: Order) -> Instance:
    """Returns a task that asks for the total of an order, in dollars."""
    return _order_fact(order, "Order total", order.total)


def order_status(order: Order) -> Instance:
    """Returns a task that asks for the status of an order, such as Pending."""
    return _order_fact(order, "Status", order.status)


def strange_order(order: Order) -> Instance:
    """Returns an impossible task, which asks for the status of another customer's order."""
    return Instance({"order": order.number}, impossible(), refusing(open_order(order)))


def spending(first: datetime.date, last: datetime.date, cents: int) -> Instance:
    """Returns a task that asks for the customer's spending between two days."""
    way = in_order(
        open_account("Order History"),
        fill("From", first.isoformat()),
        fill("To", last.isoformat(), enter=True),
    )

    def read(page: list[Node]) -> str:
        cells = [node.name for node in page if node.role == "cell"]
        sums = [dollars(cell).replace(",", "") for cell in cells if re.fullmatch(_SUM, cell)]
        return f"{sum(map(float, sums)):.2f}"

    values = {"month": first.strftime("%B %Y")}
    return Instance(values, answer_has(f"{cents / 100:.2f}"), answering(way, read))


def reviewer(review: Review) -> Instance:
    """Returns a task that asks for the author of a review."""

    def read(page: list[Node]) -> str:
        places = (i for i, node in enumerate(page) if node.name == review.title)
        start = script.first(places, review.title)
        return value_after(page[start:], "Reviewed by", "StaticText")

    return Instance(
        {"product": review.product.title, "title": review.title},
        answer_has(review.customer.name),
        answering(open_product(review.product), read),
    )


def no_reviewer(product: Product, title: str) -> Instance:
    """Returns an impossible task, which asks for the author of a review that does not exist."""
    values = {"product": product.title, "title": title}
    return Instance(values, impossible(), refusing(open_product(product)))


def on_a_page(question: str, page: str, pattern: str, answer: str) -> Instance:
    """Returns a task with a question whose answer is on a page of text.

    The pages of text are short, so the first observation of the page contains the answer.
    """

    def read(found: list[Node]) -> str:
        text = " ".join(node.name for node in found)
        match = re.search(pattern, text)
        if match is None:
            raise script.ScriptError(f"{pattern} is not in {text}")
        return match[1]

    return Instance(
        {"question": question},
        answer_has(answer),
        answering(open_account(page), read, in_sight=True),
    )


def basket_total(product: Product) -> Instance:
    """Returns a task that asks for the total of the basket after a product is added.

    The basket already has other products, so the price of the product alone is not the answer.
    """
    way = in_order(put_in_basket(product), open_basket())
    read = labelled("Order total")
    before = sum(each.cents * count for each, count in tables().basket)
    total = f"{(before + product.cents) / 100:.2f}"
    return Instance(
        {"product": product.title},
        all_of(answer_has(total), changes(edits.in_basket(product, 1))),
        answering(way, read),
    )


def count_reviews(product: Product) -> Instance:
    """Returns a task that asks for the number of reviews of a product."""
    read = labelled("Number of reviews")
    return Instance(
        {"product": product.title},
        answer_is(str(len(tables().reviews_of(product)))),
        answering(open_product(product), read),
    )


def shelf_page(shelf: Shelf, words: str, option: str, key: str) -> Instance:
    """Returns a task to open a category with its products in a given order.

    Args:
      shelf: Category to open.
      words: Description of the order in the text of the task.
      option: Name of the sort order in the shop.
      key: Name of the sort order in the address.
    """
    return Instance(
        {"category": shelf.name, "order": words},
        ends_at(f"{SHOP}{category_path(shelf)}?sort_by={key}"),
        doing(sort_shelf(shelf=shelf, order=option)),
    )


def product_page(product: Product) -> Instance:
    """Returns a task to open the page of a product; the task names the product's number."""
    play = doing(fill("Search", product.upc, enter=True), click("link", product.title))
    return Instance({"upc": product.upc}, ends_at(SHOP + product.path), play)
