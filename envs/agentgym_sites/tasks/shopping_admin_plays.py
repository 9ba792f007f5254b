"""Selections of things, and navigation and form steps, that several tasks on the dashboard use."""

import datetime
from collections.abc import Sequence
from typing import TypeVar

from agentgym_sites.chance import Dice
from agentgym_sites.shop.tables import Customer, Order, Product, Review, tables
from agentgym_sites.tasks.script import Way, click, fill, fill_all, in_order

T = TypeVar("T")

ADMIN = "__SHOPPING_ADMIN__"
_PER_TEMPLATE = 4  # usual number of tasks of a template


def some(name: str, things: Sequence[T], count: int = _PER_TEMPLATE) -> list[T]:
    """Returns items for a template, one per task."""
    return Dice(f"admin {name}").sample(things, count)


def products(name: str) -> list[Product]:
    """Returns products for a template."""
    return some(name, tables().products)


def customers(name: str) -> list[Customer]:
    """Returns customers other than the one who is logged in to the shop."""
    return some(name, tables().customers[1:])


def orders(name: str) -> list[Order]:
    """Returns orders for a template."""
    return some(name, tables().orders)


def open_menu(menu: str, page: str) -> Way:
    """Opens a page from the menu at the top."""
    return in_order(click("button", menu), click("link", page))


def open_order(order: Order) -> Way:
    """Searches for an order by its number; the dashboard opens the only result directly."""
    return in_order(
        open_menu("Fulfilment", "Orders"), fill("Order number:", order.number, enter=True)
    )


def open_product(product: Product) -> Way:
    """Searches for a product by its UPC and opens its form."""
    return in_order(
        open_menu("Catalogue", "Products"),
        fill("UPC:", product.upc, enter=True),
        click("link", product.title, after="Actions"),
    )


def open_stock(product: Product) -> Way:
    """Opens the part of a product's form with the stock and the price."""
    return in_order(open_product(product), click("link", "Stock and pricing"))


def open_customer(customer: Customer) -> Way:
    """Searches for a customer by name and opens the customer's page."""
    return in_order(
        open_menu("Customers", "Customers"),
        fill("Name:", customer.name, enter=True),
        click("link", customer.email),
    )


def open_review(review: Review) -> Way:
    """Searches for a review by its author and title, and opens it."""
    return in_order(
        open_menu("Content", "Reviews"),
        fill("Customer name:", review.customer.name),
        fill("Keyword:", review.title, enter=True),
        click("link", review.title, after="Date created"),
    )


def create(menu: str, page: str, thing: str, texts: dict[str, str]) -> Way:
    """Opens the form for a new item and fills its text fields, without saving it.

    Args:
      menu: Name of the menu at the top.
      page: Menu entry that opens the list of existing items.
      thing: Kind of item, as in that page's link `Create new {thing}`.
      texts: Text of each field, by field name.
    """
    return in_order(open_menu(menu, page), click("link", f"Create new {thing}"), fill_all(texts))


def save() -> Way:
    """Submits the open form."""
    return click("button", "Save")


# Last header of the table with a product's stock. The fields below it have no names and are
# identified by their position.
LAST_HEADER = "Delete?"


def set_stock_field(nth: int, text: str) -> Way:
    """Changes the nth number field in a product's stock table and saves the form."""
    return in_order(
        fill("", text, role="spinbutton", after=LAST_HEADER, nth=nth, is_empty=False), save()
    )


def iso(day: str) -> str:
    """Returns the ISO date of a day such as "Sept. 6, 2023" or "March 1, 2024"."""
    month, number, year = day.replace(".", "").replace(",", "").split()
    return datetime.datetime.strptime(f"{month[:3]} {number} {year}", "%b %d %Y").date().isoformat()
