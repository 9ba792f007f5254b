"""Tasks for the administrator in the shop's dashboard. Those of this module read it or open a page."""

from collections import Counter

from agentgym_envs.webarena.tasks import Evaluation
from agentgym_sites.shop.tables import (
    FIRST_ORDER_NUMBER,
    VOUCHERS,
    Customer,
    Order,
    Product,
    tables,
)
from agentgym_sites.tasks import script, shopping_admin_writing
from agentgym_sites.tasks.script import (
    Node,
    Reader,
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
    customers,
    iso,
    open_customer,
    open_menu,
    open_order,
    open_stock,
    orders,
    products,
    some,
)
from agentgym_sites.tasks.shopping_plays import days_of
from agentgym_sites.tasks.task import (
    EmbeddedTask,
    Row,
    Rows,
    Templates,
    answer_has,
    answer_is,
    ends_at,
    impossible,
    refusing,
)

_TEMPLATES = Templates("shopping_admin")


def tasks() -> list[EmbeddedTask]:
    """Returns all tasks in the dashboard."""
    return _TEMPLATES.tasks() + shopping_admin_writing.TEMPLATES.tasks()


# Tasks that ask about customers.


def _ask_customer(customer: Customer, label: str, check: Evaluation) -> Row:
    read = labelled(label)
    return {"customer": customer.name}, check, answering(open_customer(customer), read)


@_TEMPLATES(0, "What is the email address of the customer {customer}?")
def _customer_email() -> Rows:
    for customer in customers("email"):
        yield _ask_customer(customer, "Email", answer_has(customer.email))
    name = "Leopold Marchbanks"
    way = in_order(open_menu("Customers", "Customers"), fill("Name:", name, enter=True))
    yield {"customer": name}, impossible(), refusing(way)


@_TEMPLATES(1, "How many orders has the customer {customer} placed? Answer with the number only.")
def _customer_orders() -> Rows:
    for customer in customers("orders"):
        count = len(tables().orders_of(customer))
        yield _ask_customer(customer, "Number of orders", answer_is(str(count)))


@_TEMPLATES(
    2,
    "How much has the customer {customer} spent with us in all, in dollars? Write it as the "
    "page does.",
)
def _customer_spending() -> Rows:
    for customer in customers("spent"):
        cents = sum(order.cents for order in tables().orders_of(customer))
        text = f"{cents // 100:,}.{cents % 100:02d}"
        yield _ask_customer(customer, "Total spent", answer_has(text))


# Tasks that ask about orders.


@_TEMPLATES(3, "Who placed order {order}?")
def _order_customer() -> Rows:
    for order in orders("customer"):
        play = answering(open_order(order), labelled("Email address"), in_sight=True)
        yield {"order": order.number}, answer_has(order.customer.name), play
    number = str(FIRST_ORDER_NUMBER + len(tables().orders) + 27)
    way = in_order(open_menu("Fulfilment", "Orders"), fill("Order number:", number, enter=True))
    yield {"order": number}, impossible(), refusing(way)


def _read_day(order: Order) -> Reader:
    def read(page: list[Node]) -> str:
        cells = [node.name for node in page if node.role == "cell"]
        days = (cell for cell in cells if cell.endswith(f", {order.placed.year}"))
        return iso(script.first(days, "day"))

    return read


@_TEMPLATES(4, "On which day was order {order} placed? Answer like 2023-01-31.")
def _order_day() -> Rows:
    for order in orders("day"):
        play = answering(open_order(order), _read_day(order), in_sight=True)
        yield {"order": order.number}, answer_has(order.placed.date().isoformat()), play


@_TEMPLATES(5, 'How many of our orders have the status "{status}"? Answer with the number only.')
def _status_count() -> Rows:
    counts = Counter(order.status for order in tables().orders)
    for status, count in sorted(counts.items()):
        play = answering(open_menu("Fulfilment", "Statistics"), labelled(status))
        yield {"status": status}, answer_is(str(count)), play


@_TEMPLATES(
    6,
    "How many orders were placed from {first} to {last}, both days included? Answer with the "
    "number only.",
)
def _orders_between() -> Rows:
    for month in ((2023, 3), (2023, 6), (2023, 11), (2024, 2)):
        first, last = days_of(*month)
        way = in_order(
            open_menu("Fulfilment", "Statistics"),
            fill("From:", first.isoformat()),
            fill("To:", last.isoformat(), enter=True),
        )
        count = sum(first <= order.placed.date() <= last for order in tables().orders)
        values = {"first": first.isoformat(), "last": last.isoformat()}
        yield values, answer_is(str(count)), answering(way, labelled("Total orders"))


# Tasks that ask about products, reviews and vouchers.


def _ask_stock(product: Product, column: int, answer: str) -> Row:
    """Returns a task that asks for a cell in the stock table of a product.

    `column` is the position of the cell after the table's last header.
    """

    def read(page: list[Node]) -> str:
        places = (i for i, node in enumerate(page) if node.name == LAST_HEADER)
        start = script.first(places, LAST_HEADER)
        return [node.name for node in page[start:] if node.role == "cell"][column]

    return {"product": product.title}, answer_is(answer), answering(open_stock(product), read)


@_TEMPLATES(
    7,
    "How many pieces of the {product} do we have in stock, according to the dashboard? Answer "
    "with the number only.",
)
def _stock() -> Rows:
    for product in products("in stock"):
        yield _ask_stock(product, 2, str(product.stock))


@_TEMPLATES(8, "Which partner delivers the {product}? Answer with the name only.")
def _partner() -> Rows:
    for product in products("partner"):
        yield _ask_stock(product, 0, product.partner)


def _read_author(title: str) -> Reader:
    def read(page: list[Node]) -> str:
        start = script.first((i for i, node in enumerate(page) if node.name == title), title)
        cells = (n.name for n in page[start:] if n.role == "cell" and n.name != title)
        return script.first(cells, "cell")

    return read


@_TEMPLATES(9, "A review of the {product} waits for moderation. Which customer wrote it?")
def _review_author() -> Rows:
    way = in_order(
        open_menu("Content", "Reviews"),
        choose("Status:", "Requires moderation"),
        click("button", "Search"),
    )
    pending = [review for review in tables().reviews if not review.is_approved]
    for review in some("author", pending):
        title = review.product.title
        play = answering(way, _read_author(title))
        yield {"product": title}, answer_has(review.customer.name), play


def _read_end(page: list[Node]) -> str:
    return iso(value_after(page, "End datetime", "cell").removesuffix(", midnight"))


@_TEMPLATES(10, "What is the last day of the voucher with the code {code}? Answer like 2023-01-31.")
def _voucher_end() -> Rows:
    for voucher in VOUCHERS[:5]:
        way = in_order(open_menu("Offers", "Vouchers"), click("link", voucher.name))
        check = answer_has(voucher.last_day.isoformat())
        yield {"code": voucher.code}, check, answering(way, _read_end)
    yield {"code": "HARVEST30"}, impossible(), refusing(open_menu("Offers", "Vouchers"))


# Tasks that ask to find a page.


@_TEMPLATES(11, "Open the page of order {order} in the dashboard.")
def _order_page() -> Rows:
    for order in orders("page"):
        check = ends_at(f"{ADMIN}/orders/{order.number}/")
        yield {"order": order.number}, check, doing(open_order(order))


@_TEMPLATES(12, "Open the page of the customer with the address {email} in the dashboard.")
def _customer_page() -> Rows:
    for customer in customers("page"):
        check = ends_at(f"{ADMIN}/users/{customer.id}/")
        yield {"email": customer.email}, check, doing(open_customer(customer))
