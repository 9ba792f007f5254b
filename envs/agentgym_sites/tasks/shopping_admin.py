"""Tasks for the administrator in the shop's dashboard: reading, finding a page, changing, adding."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from agentgym_sites.chance import Dice
from agentgym_sites.shop.tables import (
    FIRST_ORDER_NUMBER,
    VOUCHERS,
    Customer,
    Order,
    Product,
    Review,
    tables,
)
from agentgym_sites.tasks import shopping_admin_reading as reading
from agentgym_sites.tasks import shopping_admin_writing as writing
from agentgym_sites.tasks.shopping_plays import days_of
from agentgym_sites.tasks.task import EmbeddedTask, Instance, from_template

T = TypeVar("T")

_PER_TEMPLATE = 4


def tasks() -> list[EmbeddedTask]:
    """Returns all tasks in the dashboard."""
    return [
        *_about_customers(),
        *_about_orders(),
        *_about_things(),
        *_finding(),
        *_changing(),
        *_judging(),
        *_adding(),
    ]


def _about_customers() -> Iterable[EmbeddedTask]:
    yield from _template(
        0,
        "What is the email address of the customer {customer}?",
        [
            *map(reading.customer_email, _customers("email")),
            reading.no_customer_email("Leopold Marchbanks"),
        ],
    )
    yield from _template(
        1,
        "How many orders has the customer {customer} placed? Answer with the number only.",
        map(reading.customer_orders, _customers("orders")),
    )
    yield from _template(
        2,
        "How much has the customer {customer} spent with us in all, in dollars? Write it as the "
        "page does.",
        map(reading.customer_spending, _customers("spent")),
    )


def _about_orders() -> Iterable[EmbeddedTask]:
    yield from _template(
        3,
        "Who placed order {order}?",
        [
            *map(reading.order_customer, _orders("customer")),
            reading.no_order_customer(str(FIRST_ORDER_NUMBER + len(tables().orders) + 27)),
        ],
    )
    yield from _template(
        4,
        "On which day was order {order} placed? Answer like 2023-01-31.",
        map(reading.order_day, _orders("day")),
    )
    counts = Counter(order.status for order in tables().orders)
    yield from _template(
        5,
        'How many of our orders have the status "{status}"? Answer with the number only.',
        [reading.status_count(status, count) for status, count in sorted(counts.items())],
    )
    yield from _template(
        6,
        "How many orders were placed from {first} to {last}, both days included? Answer with the "
        "number only.",
        [reading.orders_between(*days_of(*month)) for month in _MONTHS],
    )


def _about_things() -> Iterable[EmbeddedTask]:
    yield from _template(
        7,
        "How many pieces of the {product} do we have in stock, according to the dashboard? Answer "
        "with the number only.",
        map(reading.stock, _products("in stock")),
    )
    yield from _template(
        8,
        "Which partner delivers the {product}? Answer with the name only.",
        map(reading.partner, _products("partner")),
    )
    pending = [review for review in tables().reviews if not review.is_approved]
    yield from _template(
        9,
        "A review of the {product} waits for moderation. Which customer wrote it?",
        map(reading.review_author, _some("author", pending)),
    )
    yield from _template(
        10,
        "What is the last day of the voucher with the code {code}? Answer like 2023-01-31.",
        [*map(reading.voucher_end, VOUCHERS[:5]), reading.no_voucher_end("HARVEST30")],
    )


def _finding() -> Iterable[EmbeddedTask]:
    yield from _template(
        11,
        "Open the page of order {order} in the dashboard.",
        map(reading.order_page, _orders("page")),
    )
    yield from _template(
        12,
        "Open the page of the customer with the address {email} in the dashboard.",
        map(reading.customer_page, _customers("page")),
    )


def _changing() -> Iterable[EmbeddedTask]:
    yield from _template(
        13,
        'Change the status of order {order} to "{status}".',
        [*_changed_statuses(), *_final_statuses()],
    )
    yield from _template(
        14,
        'Add this note to order {order}: "{note}"',
        map(writing.add_note, _orders("note"), _NOTES),
    )
    yield from _template(
        15,
        "Change the price of the {product} ({upc}) to ${price}.",
        map(writing.set_price, _products("price"), ("12.40", "37.90", "8.15", "64.25")),
    )
    yield from _template(
        16,
        "We counted: there are {count} pieces of the {product} ({upc}). Correct the number in "
        "stock.",
        map(writing.set_stock, _products("stock"), (33, 17, 205, 58)),
    )
    yield from _template(
        17,
        'Change the title of the product "{product}" to "{title}".',
        map(
            writing.rename_product, _products("rename"), ("Solstice", "Marble", "Cinder", "Aurora")
        ),
    )
    yield from _template(
        18,
        "Take the {product} out of the shop, without deleting it: it is not public for now.",
        map(writing.hide_product, _products("hide")),
    )


def _judging() -> Iterable[EmbeddedTask]:
    yield from _template(
        19,
        'Approve the review "{title}" that {customer} wrote of the {product}.',
        map(writing.approve, _reviews("approve", is_approved=False)),
    )
    yield from _template(
        20,
        'Reject the review "{title}" that {customer} wrote of the {product}.',
        map(writing.reject, _reviews("reject", is_approved=True)),
    )


def _adding() -> Iterable[EmbeddedTask]:
    yield from _template(
        21,
        'Make a page with the title "{title}" at the URL {url} with the text "{text}"',
        [writing.new_page(*page) for page in _PAGES],
    )
    yield from _template(
        22,
        'Make a new category "{name}" below {parent}.',
        [writing.new_category(*category) for category in _CATEGORIES],
    )
    yield from _template(
        23, 'Add a partner with the name "{name}".', map(writing.new_partner, _PARTNERS)
    )
    yield from _template(
        24,
        'Make a range of products with the name "{name}" and the description "{text}".',
        [writing.new_range(*each) for each in _RANGES],
    )
    yield from _template(
        25,
        'Make a voucher "{name}" with the code {code} that ends on {end}. It gives what the voucher '
        '"{offer}" gives.',
        [writing.new_voucher(*voucher) for voucher in _VOUCHERS],
    )


_MONTHS = ((2023, 3), (2023, 6), (2023, 11), (2024, 2))
_NEXT_STATUSES = {"Pending": ("Being processed", "Cancelled"), "Being processed": ("Complete",)}
_NOTES = (
    "Customer asked for delivery after six in the evening",
    "Parcel was returned, call the customer",
    "Pack as a present, no invoice in the parcel",
    "Address confirmed by telephone",
)
_PAGES = (
    ("Opening hours", "/opening-hours/", "The showroom is open on Saturdays from 10 to 16."),
    ("Repairs", "/repairs/", "Send in what is broken. We answer with a price in a week."),
    ("Jobs", "/jobs/", "We are looking for a packer in Riverside."),
    ("Gift wrapping", "/gift-wrapping/", "Write the word present into the notes."),
)
_CATEGORIES = (
    ("Teapots", "Kitchen"),
    ("Bird Feeders", "Garden"),
    ("Desk Clocks", "Office"),
    ("Skipping Ropes", "Sport"),
)
_PARTNERS = ("Lakeside Depot", "Southport Stores", "Old Mill Warehouse", "Westfield Hall")
_RANGES = (
    ("Autumn picks", "Warm things for shorter days"),
    ("Under the roof", "Whatever a new flat needs first"),
    ("Writers", "Paper, pens and light"),
    ("On the road", "Small things for long trips"),
)
_VOUCHERS = (
    ("Newsletter readers", "NEWS24", "2024-07-31", "Spring welcome"),
    ("Staff", "STAFF24", "2024-12-31", "Friends of the shop"),
    ("Back again", "AGAIN24", "2024-09-30", "Loyal customers"),
    ("Late summer", "LATE24", "2024-10-15", "Garden days"),
)


def _template(number: int, text: str, instances: Iterable[Instance]) -> list[EmbeddedTask]:
    return from_template("shopping_admin", number, text, instances)


def _some(name: str, things: Sequence[T], count: int = _PER_TEMPLATE) -> list[T]:
    """Returns items for a template, one per instance."""
    return Dice(f"admin {name}").sample(things, count)


def _products(name: str) -> list[Product]:
    return _some(name, tables().products)


def _customers(name: str) -> list[Customer]:
    """Returns customers other than the one who is logged in to the shop."""
    return _some(name, tables().customers[1:])


def _orders(name: str) -> list[Order]:
    return _some(name, tables().orders)


def _changed_statuses() -> Iterable[Instance]:
    unfinished = [order for order in tables().orders if order.status in _NEXT_STATUSES]
    for index, order in enumerate(_some("status", unfinished, 6)):
        choices = _NEXT_STATUSES[order.status]
        yield writing.change_status(order, choices[index % len(choices)])


def _final_statuses() -> Iterable[Instance]:
    """Yields impossible tasks to change the status of complete or cancelled orders, whose status is
    final.
    """
    finished = [order for order in tables().orders if order.status not in _NEXT_STATUSES]
    for order in _some("final status", finished, 2):
        status = "Complete" if order.status == "Cancelled" else "Cancelled"
        yield writing.change_final_status(order, status)


def _reviews(name: str, *, is_approved: bool) -> list[Review]:
    """Returns reviews whose title no other review by the same customer has."""
    shop = tables()
    titles = Counter((review.customer.id, review.title) for review in shop.reviews)
    clear = [
        review
        for review in shop.reviews
        if review.is_approved == is_approved and titles[review.customer.id, review.title] == 1
    ]
    return _some(name, clear)
