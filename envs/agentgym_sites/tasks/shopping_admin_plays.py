"""Navigation and form steps that several solutions on the dashboard use, and names used by its
tasks.
"""

import datetime

from agentgym_sites.shop.tables import Customer, Order, Product, Review
from agentgym_sites.tasks.script import Script, click, fill, fill_all

ADMIN = "__SHOPPING_ADMIN__"


def open_menu(seen: str, menu: str, page: str) -> Script:
    """Opens a page from the menu at the top."""
    seen = yield from click(seen, "button", menu)
    return (yield from click(seen, "link", page))


def open_order(seen: str, order: Order) -> Script:
    """Searches for an order by its number; the dashboard opens the only result directly."""
    seen = yield from open_menu(seen, "Fulfilment", "Orders")
    return (yield from fill(seen, "Order number:", order.number, enter=True))


def open_product(seen: str, product: Product) -> Script:
    """Searches for a product by its UPC and opens its form."""
    seen = yield from open_menu(seen, "Catalogue", "Products")
    seen = yield from fill(seen, "UPC:", product.upc, enter=True)
    return (yield from click(seen, "link", product.title, after="Actions"))


def open_stock(seen: str, product: Product) -> Script:
    """Opens the part of a product's form with the stock and the price."""
    seen = yield from open_product(seen, product)
    return (yield from click(seen, "link", "Stock and pricing"))


def open_customer(seen: str, customer: Customer) -> Script:
    """Searches for a customer by name and opens the customer's page."""
    seen = yield from open_menu(seen, "Customers", "Customers")
    seen = yield from fill(seen, "Name:", customer.name, enter=True)
    return (yield from click(seen, "link", customer.email))


def open_review(seen: str, review: Review) -> Script:
    """Searches for a review by its author and title, and opens it."""
    seen = yield from open_menu(seen, "Content", "Reviews")
    seen = yield from fill(seen, "Customer name:", review.customer.name)
    seen = yield from fill(seen, "Keyword:", review.title, enter=True)
    return (yield from click(seen, "link", review.title, after="Date created"))


def create(seen: str, menu: str, page: str, thing: str, texts: dict[str, str]) -> Script:
    """Opens the form for a new item and fills its text fields, without saving it.

    Args:
      seen: Observation before the first action.
      menu: Name of the menu at the top.
      page: Menu entry that opens the list of existing items.
      thing: Kind of item, as in that page's link `Create new {thing}`.
      texts: Text of each field, by field name.
    """
    seen = yield from open_menu(seen, menu, page)
    seen = yield from click(seen, "link", f"Create new {thing}")
    return (yield from fill_all(seen, texts))


def save(seen: str) -> Script:
    """Submits the open form."""
    return (yield from click(seen, "button", "Save"))


# Last header of the table with a product's stock. The fields below it have no names and are
# identified by their position.
LAST_HEADER = "Delete?"


def set_stock_field(seen: str, nth: int, text: str) -> Script:
    """Changes the nth number field in a product's stock table and saves the form."""
    seen = yield from fill(
        seen, "", text, role="spinbutton", after=LAST_HEADER, nth=nth, is_empty=False
    )
    return (yield from save(seen))


def iso(day: str) -> str:
    """Returns the ISO date of a day such as "Sept. 6, 2023" or "March 1, 2024"."""
    month, number, year = day.replace(".", "").replace(",", "").split()
    return datetime.datetime.strptime(f"{month[:3]} {number} {year}", "%b %d %Y").date().isoformat()
