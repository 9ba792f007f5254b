"""Navigation and reading steps that several solutions on the shop use, and names used by its tasks."""

import datetime
from collections.abc import Generator

from agentgym_sites.shop.tables import Order, Product
from agentgym_sites.shop.words import Shelf
from agentgym_sites.tasks.script import (
    Node,
    Script,
    choose,
    click,
    fill,
    first,
    look_for,
    value_after,
)

SHOP = "__SHOPPING__"
BASKET = f"{SHOP}/basket/"


def open_product(seen: str, product: Product) -> Script:
    """Searches for a product by its title and opens the product's page; can start at the top of any
    page.
    """
    seen = yield from fill(seen, "Search", product.title, enter=True)
    return (yield from click(seen, "link", product.title))


def put_in_basket(seen: str, product: Product) -> Script:
    """Opens a product and adds one piece of it to the basket."""
    seen = yield from open_product(seen, product)
    return (yield from click(seen, "button", "Add to basket"))


def open_basket(seen: str) -> Script:
    """Opens the basket; can start at the top of any page, or after a product was added."""
    return (yield from click(seen, "link|button", "View basket"))


def open_account(seen: str, page: str) -> Script:
    """Opens a page of the customer's account."""
    seen = yield from click(seen, "link", "Account")
    return (yield from click(seen, "link", page))


def open_order(seen: str, order: Order) -> Script:
    """Searches for an order of the customer and opens it."""
    seen = yield from open_account(seen, "Order History")
    # The number is unique, so the shop directly opens the order.
    return (yield from fill(seen, "Order number", order.number, enter=True))


def sort_shelf(seen: str, shelf: Shelf, order: str) -> Script:
    """Opens a category and sorts its products."""
    seen = yield from click(seen, "link", shelf.name)
    return (yield from choose(seen, "Sort by", order))


def first_of_shelf(seen: str, shelf: Shelf, order: str) -> Generator[str, str, str]:
    """Opens a category, sorts its products and returns the title of the first product."""
    seen = yield from sort_shelf(seen, shelf, order)
    _, link = yield from look_for(seen, "link", "", after="Sort by")
    return link.name


def price_on(page: list[Node], product: Product) -> str:
    """Returns the price on the page of a product, with the dollar sign."""
    # The navigation path above the heading also contains the title.
    start = first(
        (i for i, node in enumerate(page) if node.role == "heading" and node.name == product.title),
        f"heading {product.title!r}",
    )
    return value_after(page[start:], product.title, "StaticText")


def days_of(year: int, month: int) -> tuple[datetime.date, datetime.date]:
    """Returns the first and the last day of a month."""
    first = datetime.date(year, month, 1)
    next_month = (first + datetime.timedelta(days=31)).replace(day=1)
    return first, next_month - datetime.timedelta(days=1)


def dollars(text: str) -> str:
    """Returns a sum of money without the dollar sign, as in answers."""
    return text.removeprefix("$")
