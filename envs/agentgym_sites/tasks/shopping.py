"""Tasks for the customer who is logged in to the shop: reading, finding a page, buying, and account
settings.
"""

import datetime
import functools
from collections.abc import Iterable

from agentgym_sites.chance import Dice
from agentgym_sites.clock import EPISODE_START
from agentgym_sites.shop.tables import VOUCHERS, Order, Product, Review, tables
from agentgym_sites.shop.words import SHELVES, Shelf
from agentgym_sites.tasks import shopping_reading as reading
from agentgym_sites.tasks import shopping_writing as writing
from agentgym_sites.tasks.shopping_plays import days_of
from agentgym_sites.tasks.task import EmbeddedTask, Instance, from_template

_PER_TEMPLATE = 4


def tasks() -> list[EmbeddedTask]:
    """Returns all tasks in the shop."""
    return [
        *_about_products(),
        *_about_orders(),
        *_finding(),
        *_basket(),
        *_account(),
        *_sums_and_counts(),
    ]


def _about_products() -> Iterable[EmbeddedTask]:
    yield from _template(
        0, "What does the {product} cost in dollars?", map(reading.price, _products("price", 5))
    )
    yield from _template(
        1,
        'What is given as "{attribute}" for the {product}?',
        [
            reading.attribute(product, *product.attributes[2 + index % 4])
            for index, product in enumerate(_products("attribute", 8))
        ],
    )
    for number, word, order, pick in (
        (2, "cheapest", "Price low to high", min),
        (3, "most expensive", "Price high to low", max),
    ):
        yield from _template(
            number,
            f"Which product in the category {{category}} is the {word}? Answer with its full name.",
            [reading.extreme(shelf, order, pick) for shelf in _shelves(order)],
        )


def _about_orders() -> Iterable[EmbeddedTask]:
    yield from _template(
        4,
        "What was the total of my order {order}, in dollars?",
        map(reading.order_total, _orders("total")),
    )
    yield from _template(
        5,
        "What is the status of my order {order}?",
        [*map(reading.order_status, _orders("status")), *map(reading.strange_order, _others())],
    )
    yield from _template(
        6,
        "How much did I spend in this shop in {month} in all, in dollars? Count every order, "
        "whatever became of it.",
        _spending(),
    )
    yield from _template(
        7,
        'Who wrote the review "{title}" of the {product}?',
        [
            *map(reading.reviewer, _reviews()),
            *(
                reading.no_reviewer(each, "Squeaks in the rain")
                for each in _products("no review", 1)
            ),
        ],
    )
    yield from _template(
        8,
        "Find out from the pages of the shop {question}.",
        [reading.on_a_page(*fact) for fact in _FACTS],
    )


def _finding() -> Iterable[EmbeddedTask]:
    yield from _template(
        9,
        "Show me the category {category} sorted by {order}.",
        [
            reading.shelf_page(shelf, *order)
            for shelf, order in zip(_shelves("page"), _ORDERS, strict=True)
        ],
    )
    yield from _template(
        10,
        "Open the page of the product with the UPC {upc}.",
        map(reading.product_page, _products("page")),
    )


def _basket() -> Iterable[EmbeddedTask]:
    yield from _template(
        11,
        "Put the {product} into my basket.",
        map(writing.add_to_basket, _products("basket", 5, stock=7)),
    )
    yield from _template(
        12,
        "Put {count} pieces of the {product} into my basket.",
        map(writing.add_many, _products("many", stock=12), (3, 4, 5, 6)),
    )
    (first, _), (second, _) = tables().basket
    yield from _template(
        13,
        "Change my basket so that it has {count} pieces of the {product}.",
        map(writing.change_quantity, (first, second, first, second), (4, 5, 6, 9)),
    )
    yield from _template(
        14,
        "Take the {product} out of my basket and leave the rest.",
        map(writing.remove, (first, second)),
    )
    yield from _template(
        15,
        "Use the voucher code {code} for my basket.",
        [*map(writing.voucher, _valid_codes()), *map(writing.expired_voucher, _expired_codes())],
    )
    yield from _template(
        16,
        "Put everything from my order {order} into my basket again.",
        map(writing.reorder, _orders_to_repeat()),
    )
    yield from _template(
        17,
        "Buy what is in my basket and have it sent to my address at {street}.",
        map(writing.buy, _streets()),
    )


def _account() -> Iterable[EmbeddedTask]:
    yield from _template(
        18,
        'Put the {product} on my wish list "{wishlist}".',
        map(writing.wish, _products("wish"), 2 * tables().wishlists),
    )
    yield from _template(
        19,
        'Make a new wish list with the name "{name}".',
        map(
            writing.new_wishlist,
            ("Summer house", "For the office", "Wedding of Ines", "Camping trip"),
        ),
    )
    yield from _template(
        20,
        'Write a review of the {product} with {score} of 5 points, the title "{title}" and the '
        'text "{body}"',
        [
            writing.write_review(product, *opinion)
            for product, opinion in zip(_products("review"), _OPINIONS, strict=True)
        ],
    )
    yield from _template(
        21,
        "Add an address to my address book: {street}, {city}, {state} {postcode}, United States. "
        "My name is as in my profile.",
        [writing.add_address(*address) for address in _NEW_ADDRESSES],
    )
    yield from _template(
        22,
        "I moved within the town: in my address book, change {street} to {new}.",
        [
            *map(writing.edit_address, _streets(), _NEW_STREETS),
            writing.edit_no_address("31 Granary Lane", "16 Cooper Street"),
        ],
    )
    yield from _template(
        23,
        "I married: change my last name to {last_name}.",
        map(writing.rename, ("Ashdown", "Vanterpool", "Kilbride", "Oyelaran")),
    )


def _sums_and_counts() -> Iterable[EmbeddedTask]:
    indoors = [p for p in _products("total", 8, stock=7) if p.shelf.department != "Garden"]
    yield from _template(
        24,
        "Put the {product} into my basket and tell me what everything in it costs together, in "
        "dollars.",
        map(reading.basket_total, indoors[:_PER_TEMPLATE]),
    )
    yield from _template(
        25,
        "How many reviews by customers does the {product} have? Answer with the number only.",
        map(reading.count_reviews, _products("count")),
    )


_FACTS = (
    ("within how many days I may send things back", "Returns", r"within (\d+) days", "45"),
    ("what the phone number of the shop is", "Contact", r"call (\S+)", "555-0142"),
    ("since which year the shop exists", "About us", r"since (\d+)", "2014"),
    ("within how many working days parcels leave", "Delivery", r"within (\d+) working", "2"),
)
_ORDERS = (
    ("price, highest first", "Price high to low", "price-desc"),
    ("title, from A to Z", "Title A to Z", "title-asc"),
    ("customer rating", "Customer rating", "rating"),
    ("price, lowest first", "Price low to high", "price-asc"),
)
_OPINIONS = (
    (5, "Better than my old one", "I use it every morning and would not give it away again."),
    (2, "Too small for us", "It is well made but half the size that I expected from the picture."),
    (4, "Good present", "My father liked it at once and has used it every day since."),
    (3, "Honest and plain", "Nothing special, but it does what it should for a fair price."),
)
_NEW_ADDRESSES = (
    ("17 Mill Lane", "Ithaca", "NY", "14850"),
    ("203 Station Road", "Boulder", "CO", "80302"),
    ("9 Orchard Close", "Madison", "WI", "53703"),
    ("61 Quarry Hill", "Duluth", "MN", "55802"),
)
_NEW_STREETS = ("8 Rowan Way", "77 Tannery Row", "140 Depot Street")
_MONTHS = ((2023, 5), (2023, 9), (2023, 12), (2024, 1), (2023, 7), (2023, 10))
_FOUR_DIGITS = 100_000  # limit in cents, because pages show larger sums with a comma


def _template(number: int, text: str, instances: Iterable[Instance]) -> list[EmbeddedTask]:
    return from_template("shopping", number, text, instances)


@functools.cache
def _products(name: str, count: int = _PER_TEMPLATE, *, stock: int = 0) -> tuple[Product, ...]:
    """Returns different products that are neither in the basket nor on a wish list."""
    shop = tables()
    taken = {product for product, _ in shop.basket}
    taken |= {product for wishlist in shop.wishlists for product in wishlist.products}
    free = [p for p in shop.products if p.stock >= stock and p not in taken]
    return tuple(Dice(f"shopping {name}").sample(free, count))


def _shelves(name: str) -> list[Shelf]:
    return Dice(f"shopping {name}").sample(SHELVES, _PER_TEMPLATE)


def _orders(name: str) -> list[Order]:
    shop = tables()
    cheap = [order for order in shop.orders_of(shop.customer) if order.cents < _FOUR_DIGITS]
    return Dice(f"shopping {name}").sample(cheap, _PER_TEMPLATE)


def _others() -> list[Order]:
    """Returns orders of other customers."""
    shop = tables()
    return Dice("shopping others").sample(
        [order for order in shop.orders if order.customer is not shop.customer], 4
    )


def _orders_to_repeat() -> list[Order]:
    """Returns orders whose products are in stock and not in the basket."""
    shop = tables()
    full = [
        order
        for order in shop.orders_of(shop.customer)
        if all(product.stock >= quantity + 3 for product, quantity in order.lines)
        and not {product for product, _ in order.lines} & {product for product, _ in shop.basket}
    ]
    return Dice("shopping reorder").sample(full, _PER_TEMPLATE)


def _spending() -> Iterable[Instance]:
    """Yields tasks about months in which all orders together cost less than 1,000 dollars."""
    shop = tables()
    for first, last in (days_of(*month) for month in _MONTHS):
        orders = [o for o in shop.orders_of(shop.customer) if first <= o.placed.date() <= last]
        cents = sum(order.cents for order in orders)
        if 0 < cents < _FOUR_DIGITS:
            yield reading.spending(first, last, cents)


def _reviews() -> list[Review]:
    """Returns reviews whose title no other review of the product has."""
    shop = tables()
    clear = [
        review
        for review in shop.reviews
        if review.is_approved
        and sum(other.title == review.title for other in shop.reviews_of(review.product)) == 1
    ]
    return Dice("shopping reviewer").sample(clear, _PER_TEMPLATE)


def _valid_codes() -> list[str]:
    """Returns codes of vouchers that are valid for the basket."""
    today: datetime.date = EPISODE_START.date()
    valid = [each for each in VOUCHERS if each.first_day <= today <= each.last_day]
    return [each.code for each in valid if each.code != "GARDEN5"]


def _expired_codes() -> list[str]:
    today: datetime.date = EPISODE_START.date()
    return [each.code for each in VOUCHERS if each.last_day < today]


def _streets() -> list[str]:
    """Returns the streets of the customer's addresses."""
    shop = tables()
    return [address.line1 for address in (shop.customer.address, *shop.more_addresses)]
