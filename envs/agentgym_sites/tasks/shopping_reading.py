"""Tasks that read the shop or open one of its pages, with one function per template."""

import datetime
import functools
import re
from collections.abc import Callable, Generator

from agentgym_sites.shop.tables import (
    Order,
    Product,
    Review,
    category_path,
    tables,
)
from agentgym_sites.shop.words import Shelf
from agentgym_sites.tasks import script
from agentgym_sites.tasks import shopping_edits as edits
from agentgym_sites.tasks.script import (
    Node,
    Script,
    answering,
    click,
    doing,
    fill,
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

    way = functools.partial(open_product, product=product)
    return Instance(
        {"product": product.title},
        answer_has(product.price),
        answering(way, read, in_sight=True),
    )


def attribute(product: Product, name: str, value: str) -> Instance:
    """Returns a task that asks for an attribute in the table below a product."""

    def read(page: list[Node]) -> str:
        return value_after(page, name, "cell")

    return Instance(
        {"attribute": name, "product": product.title},
        answer_has(value),
        answering(functools.partial(open_product, product=product), read),
    )


def extreme(shelf: Shelf, order: str, pick: Callable) -> Instance:
    """Returns a task that asks for the cheapest or the most expensive product in a category.

    Args:
      shelf: Category of the products.
      order: Name of the sort order in the shop.
      pick: `min` or `max`, which selects the product by its price.
    """

    def play(seen: str) -> Generator[str, str, None]:
        title = yield from first_of_shelf(seen, shelf, order)
        yield script.stop(title)

    product = pick(tables().shelf_products(shelf.name), key=lambda p: p.cents)
    return Instance({"category": shelf.name}, answer_has(product.title), play)


def _order_fact(order: Order, label: str, value: str) -> Instance:
    def read(page: list[Node]) -> str:
        return dollars(value_after(page, label, "cell|StaticText"))

    way = functools.partial(open_order, order=order)
    return Instance({"order": order.number}, answer_has(value), answering(way, read))


def order_total(order: Order) -> Instance:
    """Returns a task that asks for the total of an order, in dollars."""
    return _order_fact(order, "Order total", order.total)


def order_status(order: Order) -> Instance:
    """Returns a task that asks for the status of an order, such as Pending."""
    return _order_fact(order, "Status", order.status)


def strange_order(order: Order) -> Instance:
    """Returns an impossible task, which asks for the status of another customer's order."""
    way = functools.partial(open_order, order=order)
    return Instance({"order": order.number}, impossible(), refusing(way))


def spending(first: datetime.date, last: datetime.date, cents: int) -> Instance:
    """Returns a task that asks for the customer's spending between two days."""

    def way(seen: str) -> Script:
        seen = yield from open_account(seen, "Order History")
        seen = yield from fill(seen, "From", first.isoformat())
        return (yield from fill(seen, "To", last.isoformat(), enter=True))

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
        answering(functools.partial(open_product, product=review.product), read),
    )


def no_reviewer(product: Product, title: str) -> Instance:
    """Returns an impossible task, which asks for the author of a review that does not exist."""
    way = functools.partial(open_product, product=product)
    values = {"product": product.title, "title": title}
    return Instance(values, impossible(), refusing(way))


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

    way = functools.partial(open_account, page=page)
    return Instance({"question": question}, answer_has(answer), answering(way, read, in_sight=True))


def basket_total(product: Product) -> Instance:
    """Returns a task that asks for the total of the basket after a product is added.

    The basket already has other products, so the price of the product alone is not the answer.
    """

    def way(seen: str) -> Script:
        seen = yield from put_in_basket(seen, product)
        return (yield from open_basket(seen))

    def read(page: list[Node]) -> str:
        return dollars(value_after(page, "Order total", "cell"))

    before = sum(each.cents * count for each, count in tables().basket)
    total = f"{(before + product.cents) / 100:.2f}"
    return Instance(
        {"product": product.title},
        all_of(answer_has(total), changes(edits.in_basket(product, 1))),
        answering(way, read),
    )


def count_reviews(product: Product) -> Instance:
    """Returns a task that asks for the number of reviews of a product."""

    def read(page: list[Node]) -> str:
        return value_after(page, "Number of reviews", "cell")

    return Instance(
        {"product": product.title},
        answer_is(str(len(tables().reviews_of(product)))),
        answering(functools.partial(open_product, product=product), read),
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
        doing(functools.partial(sort_shelf, shelf=shelf, order=option)),
    )


def product_page(product: Product) -> Instance:
    """Returns a task to open the page of a product; the task names the product's number."""

    def way(seen: str) -> Script:
        seen = yield from fill(seen, "Search", product.upc, enter=True)
        return (yield from click(seen, "link", product.title))

    return Instance({"upc": product.upc}, ends_at(SHOP + product.path), doing(way))
