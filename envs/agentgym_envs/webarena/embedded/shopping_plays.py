"""Ways through the shop that its solutions share, and what tasks say of it."""

import datetime
from collections.abc import Generator

from agentgym_envs.webarena.embedded.script import (
    Node,
    Script,
    choose,
    click,
    fill,
    look_for,
    value_after,
)
from agentgym_envs.webarena.sites.shop.tables import Order, Product
from agentgym_envs.webarena.sites.shop.words import Shelf

SHOP = "__SHOPPING__"
BASKET = f"{SHOP}/basket/"
_MENU_LINES = 15  # at the top of every page; the title of a product is in its path, too


def open_product(seen: str, product: Product) -> Script:
    """Searches for a product by its title and opens its page; from the top of any page."""
    seen = yield from fill(seen, "Search", product.title, enter=True)
    return (yield from click(seen, "link", product.title))


def put_in_basket(seen: str, product: Product) -> Script:
    """Opens a product and puts one of it into the basket."""
    seen = yield from open_product(seen, product)
    return (yield from click(seen, "button", "Add to basket"))


def open_basket(seen: str) -> Script:
    """From the top of any page, or after something was put in."""
    return (yield from click(seen, "link|button", "View basket"))


def open_account(seen: str, page: str) -> Script:
    """Opens a page of the customer's account."""
    seen = yield from click(seen, "link", "Account")
    return (yield from click(seen, "link", page))


def open_order(seen: str, order: Order) -> Script:
    """Searches for an order of the customer."""
    seen = yield from open_account(seen, "Order History")
    # One order with that number: the shop goes to it at once.
    return (yield from fill(seen, "Order number", order.number, enter=True))


def sort_shelf(seen: str, shelf: Shelf, order: str) -> Script:
    """Opens a category and sorts it."""
    seen = yield from click(seen, "link", shelf.name)
    return (yield from choose(seen, "Sort by", order))


def first_of_shelf(seen: str, shelf: Shelf, order: str) -> Generator[str, str, str]:
    """Sorts a category; returns the title of the product that comes first."""
    seen = yield from sort_shelf(seen, shelf, order)
    _, link = yield from look_for(seen, "link", "", after="Sort by")
    return link.name


def price_on(page: list[Node], product: Product) -> str:
    """What the page of a product says it costs, with the sign."""
    return value_after(page[_MENU_LINES:], product.title, "StaticText")


def days_of(year: int, month: int) -> tuple[datetime.date, datetime.date]:
    """The first and the last day of a month."""
    first = datetime.date(year, month, 1)
    next_month = (first + datetime.timedelta(days=31)).replace(day=1)
    return first, next_month - datetime.timedelta(days=1)


def dollars(text: str) -> str:
    """A sum without its sign, as answers have it."""
    return text.removeprefix("$")
