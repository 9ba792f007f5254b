"""Navigation and reading steps, and products, that several tasks of the shop's customer use."""

import datetime
import functools
from collections.abc import Callable, Generator

from agentgym_sites.chance import Dice
from agentgym_sites.shop.tables import Order, Product, tables
from agentgym_sites.shop.words import Shelf
from agentgym_sites.tasks.script import (
    Node,
    Way,
    choose,
    click,
    fill,
    first,
    in_order,
    look_for,
    value_after,
)

SHOP = "__SHOPPING__"
PER_TEMPLATE = 4  # usual number of tasks of a template


def dice(name: str) -> Dice:
    """Returns the dice that select things for a template."""
    return Dice(f"shopping {name}")


@functools.cache
def some_products(name: str, count: int = PER_TEMPLATE, *, stock: int = 0) -> tuple[Product, ...]:
    """Returns different products that are neither in the basket nor on a wish list."""
    shop = tables()
    taken = {product for product, _ in shop.basket}
    taken |= {product for wishlist in shop.wishlists for product in wishlist.products}
    free = [p for p in shop.products if p.stock >= stock and p not in taken]
    return tuple(dice(name).sample(free, count))


def open_product(product: Product) -> Way:
    """Searches for a product by its title and opens the product's page; can start at the top of any
    page.
    """
    return in_order(fill("Search", product.title, enter=True), click("link", product.title))


def put_in_basket(product: Product) -> Way:
    """Opens a product and adds one piece of it to the basket."""
    return in_order(open_product(product), click("button", "Add to basket"))


def open_basket() -> Way:
    """Opens the basket; can start at the top of any page, or after a product was added."""
    return click("link|button", "View basket")


def open_account(page: str) -> Way:
    """Opens a page of the customer's account."""
    return in_order(click("link", "Account"), click("link", page))


def open_order(order: Order) -> Way:
    """Searches for an order of the customer and opens it."""
    # The number is unique, so the shop directly opens the order.
    return in_order(open_account("Order History"), fill("Order number", order.number, enter=True))


def sort_shelf(shelf: Shelf, order: str) -> Way:
    """Opens a category and sorts its products."""
    return in_order(click("link", shelf.name), choose("Sort by", order))


def first_of_shelf(shelf: Shelf, order: str) -> Callable[[str], Generator[str, str, str]]:
    """Opens a category, sorts its products and returns the title of the first product."""

    def find(seen: str) -> Generator[str, str, str]:
        seen = yield from sort_shelf(shelf, order)(seen)
        _, link = yield from look_for(seen, "link", "", after="Sort by")
        return link.name

    return find


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
