"""Tasks that read the dashboard or open one of its pages, with one function per template."""

import datetime

from agentgym_envs.webarena.tasks import Evaluation
from agentgym_sites.shop.tables import Customer, Order, Product, Review, Voucher, tables
from agentgym_sites.tasks import script
from agentgym_sites.tasks.script import (
    Node,
    answering,
    choose,
    click,
    doing,
    fill,
    in_order,
    labelled,
    value_after,
)
from agentgym_sites.tasks.shopping_admin_plays import (
    ADMIN,
    LAST_HEADER,
    iso,
    open_customer,
    open_menu,
    open_order,
    open_stock,
)
from agentgym_sites.tasks.task import Instance, answer_has, answer_is, ends_at, impossible, refusing


def _ask_customer(customer: Customer, label: str, check: Evaluation) -> Instance:
    read = labelled(label)
    return Instance({"customer": customer.name}, check, answering(open_customer(customer), read))


def customer_email(customer: Customer) -> Instance:
    """Returns a task that asks for the email address of a customer."""
    return _ask_customer(customer, "Email", answer_has(customer.email))


def no_customer_email(name: str) -> Instance:
    """Returns an impossible task, which asks for the email address of a person who is not a
    customer.
    """
    way = in_order(open_menu("Customers", "Customers"), fill("Name:", name, enter=True))
    return Instance({"customer": name}, impossible(), refusing(way))


def customer_orders(customer: Customer) -> Instance:
    """Returns a task that asks for the number of orders of a customer."""
    count = len(tables().orders_of(customer))
    return _ask_customer(customer, "Number of orders", answer_is(str(count)))


def customer_spending(customer: Customer) -> Instance:
    """Returns a task that asks for the total spending of a customer."""
    cents = sum(order.cents for order in tables().orders_of(customer))
    text = f"{cents // 100:,}.{cents % 100:02d}"
    return _ask_customer(customer, "Total spent", answer_has(text))


def order_customer(order: Order) -> Instance:
    """Returns a task that asks for the customer of an order."""
    read = labelled("Email address")
    return Instance(
        {"order": order.number},
        answer_has(order.customer.name),
        answering(open_order(order), read, in_sight=True),
    )


def no_order_customer(number: str) -> Instance:
    """Returns an impossible task, which asks for the customer of an order that does not exist."""
    way = in_order(open_menu("Fulfilment", "Orders"), fill("Order number:", number, enter=True))
    return Instance({"order": number}, impossible(), refusing(way))


def order_day(order: Order) -> Instance:
    """Returns a task that asks for the date of an order."""

    def read(page: list[Node]) -> str:
        cells = [node.name for node in page if node.role == "cell"]
        days = (cell for cell in cells if cell.endswith(f", {order.placed.year}"))
        return iso(script.first(days, "day"))

    return Instance(
        {"order": order.number},
        answer_has(order.placed.date().isoformat()),
        answering(open_order(order), read, in_sight=True),
    )


def status_count(status: str, count: int) -> Instance:
    """Returns a task that asks for the number of orders with a status."""
    read = labelled(status)
    return Instance(
        {"status": status},
        answer_is(str(count)),
        answering(open_menu("Fulfilment", "Statistics"), read),
    )


def orders_between(first: datetime.date, last: datetime.date) -> Instance:
    """Returns a task that asks for the number of orders between two days."""
    way = in_order(
        open_menu("Fulfilment", "Statistics"),
        fill("From:", first.isoformat()),
        fill("To:", last.isoformat(), enter=True),
    )
    read = labelled("Total orders")
    count = sum(first <= order.placed.date() <= last for order in tables().orders)
    values = {"first": first.isoformat(), "last": last.isoformat()}
    return Instance(values, answer_is(str(count)), answering(way, read))


def _ask_stock(product: Product, column: int, answer: str) -> Instance:
    """Returns a task that asks for a cell in the stock table of a product.

    `column` is the position of the cell after the table's last header.
    """

    def read(page: list[Node]) -> str:
        places = (i for i, node in enumerate(page) if node.name == LAST_HEADER)
        start = script.first(places, LAST_HEADER)
        return [node.name for node in page[start:] if node.role == "cell"][column]

    return Instance(
        {"product": product.title}, answer_is(answer), answering(open_stock(product), read)
    )


def stock(product: Product) -> Instance:
    """Returns a task that asks for the number of units of a product in stock."""
    return _ask_stock(product, 2, str(product.stock))


def partner(product: Product) -> Instance:
    """Returns a task that asks for the supplier of a product."""
    return _ask_stock(product, 0, product.partner)


def review_author(review: Review) -> Instance:
    """Returns a task that asks for the author of a review that waits for moderation."""
    way = in_order(
        open_menu("Content", "Reviews"),
        choose("Status:", "Requires moderation"),
        click("button", "Search"),
    )
    title = review.product.title

    def read(page: list[Node]) -> str:
        start = script.first((i for i, node in enumerate(page) if node.name == title), title)
        cells = (n.name for n in page[start:] if n.role == "cell" and n.name != title)
        return script.first(cells, "cell")

    return Instance({"product": title}, answer_has(review.customer.name), answering(way, read))


def voucher_end(voucher: Voucher) -> Instance:
    """Returns a task that asks for the last day of a voucher."""
    way = in_order(open_menu("Offers", "Vouchers"), click("link", voucher.name))

    def read(page: list[Node]) -> str:
        return iso(value_after(page, "End datetime", "cell").removesuffix(", midnight"))

    check = answer_has(voucher.last_day.isoformat())
    return Instance({"code": voucher.code}, check, answering(way, read))


def no_voucher_end(code: str) -> Instance:
    """Returns an impossible task, which asks for the last day of a voucher that does not exist."""
    return Instance({"code": code}, impossible(), refusing(open_menu("Offers", "Vouchers")))


def order_page(order: Order) -> Instance:
    """Returns a task to open the page of an order."""
    return Instance(
        {"order": order.number},
        ends_at(f"{ADMIN}/orders/{order.number}/"),
        doing(open_order(order)),
    )


def customer_page(customer: Customer) -> Instance:
    """Returns a task to open the page of a customer."""
    return Instance(
        {"email": customer.email},
        ends_at(f"{ADMIN}/users/{customer.id}/"),
        doing(open_customer(customer)),
    )
