"""Tasks in the dashboard of the shop, as its administrator."""

import datetime
from collections import Counter
from collections.abc import Callable, Sequence

from agentgym_envs.webarena.embedded import script
from agentgym_envs.webarena.embedded.script import (
    Play,
    Script,
    choose,
    click,
    fill,
    read_page,
    refill,
    value_after,
)
from agentgym_envs.webarena.embedded.task import (
    EmbeddedTask,
    Instance,
    answer_has,
    answer_is,
    ends_at,
    from_template,
    page_has,
    page_is,
)
from agentgym_envs.webarena.sites.chance import Dice
from agentgym_envs.webarena.sites.shop.tables import (
    VOUCHERS,
    Customer,
    Order,
    Product,
    Review,
    tables,
)

GROUP = "shopping_admin"
ADMIN = "__SHOPPING_ADMIN__"
SHOP = "__SHOPPING__"


def tasks() -> list[EmbeddedTask]:
    """All of them; a template keeps its number."""
    made: list[EmbeddedTask] = []
    for number, (text, instances) in _TEMPLATES.items():
        made += from_template(GROUP, number, text, instances())
    return made


# Ways through the dashboard, shared with the tasks across sites.


def open_menu(seen: str, menu: str, page: str) -> Script:
    """Opens a page of the menu at the top."""
    seen = yield from click(seen, "button", menu)
    return (yield from click(seen, "link", page))


def open_order(seen: str, order: Order) -> Script:
    """Searches for an order; the dashboard goes to the only one with a number."""
    seen = yield from open_menu(seen, "Fulfilment", "Orders")
    return (yield from fill(seen, "Order number:", order.number, enter=True))


def open_product(seen: str, product: Product) -> Script:
    """Searches for a product by its UPC and opens its form."""
    seen = yield from open_menu(seen, "Catalogue", "Products")
    seen = yield from fill(seen, "UPC:", product.upc, enter=True)
    return (yield from click(seen, "link", product.title, after="Actions"))


def _open_stock(seen: str, product: Product) -> Script:
    seen = yield from open_product(seen, product)
    return (yield from click(seen, "link", "Stock and pricing"))


def _open_customer(seen: str, customer: Customer) -> Script:
    seen = yield from open_menu(seen, "Customers", "Customers")
    seen = yield from fill(seen, "Name:", customer.name, enter=True)
    return (yield from click(seen, "link", customer.email))


def _open_review(seen: str, review: Review) -> Script:
    seen = yield from open_menu(seen, "Content", "Reviews")
    seen = yield from fill(seen, "Customer name:", review.customer.name)
    seen = yield from fill(seen, "Keyword:", review.title, enter=True)
    seen = yield from click(seen, "link", review.title, after="Date created")
    return seen


# Choosing what tasks are about.


def _products(name: str, count: int) -> list[Product]:
    return Dice(f"admin {name}").sample(tables().products, count)


def _orders(name: str, count: int, *statuses: str) -> list[Order]:
    orders = [o for o in tables().orders if not statuses or o.status in statuses]
    return Dice(f"admin {name}").sample(orders, count)


def _customers(name: str, count: int) -> list[Customer]:
    return Dice(f"admin {name}").sample(tables().customers[1:], count)


def _reviews(name: str, count: int, *, is_approved: bool) -> list[Review]:
    """Reviews whose customer has no other with the same title."""
    shop = tables()
    titles = Counter((r.customer.id, r.title) for r in shop.reviews)
    clear = [
        review
        for review in shop.reviews
        if review.is_approved == is_approved and titles[review.customer.id, review.title] == 1
    ]
    return Dice(f"admin {name}").sample(clear, count)


# Questions.


def _customer_fact(
    name: str, label: str, fact: Callable[[Customer], str], *, exact: bool = False
) -> list[Instance]:
    def play(customer: Customer) -> Play:
        def run(seen: str):
            seen = yield from _open_customer(seen, customer)
            value = value_after((yield from read_page(seen)), label, "cell")
            yield script.stop(value.removeprefix("$"))

        return run

    check = answer_is if exact else answer_has
    return [Instance({"customer": c.name}, check(fact(c)), play(c)) for c in _customers(name, 4)]


def _spent(customer: Customer) -> str:
    cents = sum(order.cents for order in tables().orders_of(customer))
    return f"{cents // 100:,}.{cents % 100:02d}"


def _order_customer() -> list[Instance]:
    def play(order: Order) -> Play:
        def run(seen: str):
            seen = yield from open_order(seen, order)
            found = script.nodes(seen)
            yield script.stop(value_after(found, "Email address", "cell"))

        return run

    return [
        Instance({"order": o.number}, answer_has(o.customer.name), play(o))
        for o in _orders("customer", 4)
    ]


def _order_day() -> list[Instance]:
    def play(order: Order) -> Play:
        def run(seen: str):
            seen = yield from open_order(seen, order)
            cells = [node.name for node in script.nodes(seen) if node.role == "cell"]
            days = (cell for cell in cells if cell.endswith(f", {order.placed.year}"))
            day = script.first(days, "day")
            yield script.stop(_iso(day))

        return run

    return [
        Instance({"order": o.number}, answer_has(o.placed.date().isoformat()), play(o))
        for o in _orders("day", 4)
    ]


def _iso(day: str) -> str:
    """A day such as "Sept. 6, 2023" or "March 1, 2024"."""
    month, number, year = day.replace(".", "").replace(",", "").split()
    return datetime.datetime.strptime(f"{month[:3]} {number} {year}", "%b %d %Y").date().isoformat()


def _status_count() -> list[Instance]:
    def play(status: str) -> Play:
        def run(seen: str):
            seen = yield from open_menu(seen, "Fulfilment", "Statistics")
            found = yield from read_page(seen)
            yield script.stop(value_after(found, status, "cell"))

        return run

    counts = Counter(order.status for order in tables().orders)
    return [
        Instance({"status": status}, answer_is(str(count)), play(status))
        for status, count in sorted(counts.items())
    ]


def _revenue() -> list[Instance]:
    def play(first: datetime.date, last: datetime.date) -> Play:
        def run(seen: str):
            seen = yield from open_menu(seen, "Fulfilment", "Statistics")
            seen = yield from fill(seen, "From:", first.isoformat())
            seen = yield from fill(seen, "To:", last.isoformat(), enter=True)
            found = yield from read_page(seen)
            yield script.stop(value_after(found, "Total orders", "cell"))

        return run

    made = []
    for year, month in ((2023, 3), (2023, 6), (2023, 11), (2024, 2)):
        first = datetime.date(year, month, 1)
        last = (first + datetime.timedelta(days=31)).replace(day=1) - datetime.timedelta(days=1)
        count = sum(first <= order.placed.date() <= last for order in tables().orders)
        values = {"first": first.isoformat(), "last": last.isoformat()}
        made.append(Instance(values, answer_is(str(count)), play(first, last)))
    return made


# Fields of a stock record, in the order of their columns; they have no names.
_PARTNER, _STOCK = 0, 2  # cells
_STOCK_FIELD, _PRICE_FIELD = 0, 2  # numbers
_LAST_HEADER = "Delete?"


def _stock_fact(name: str, fact: Callable[[Product], str], column: int) -> list[Instance]:
    def play(product: Product) -> Play:
        def run(seen: str):
            seen = yield from _open_stock(seen, product)
            found = yield from read_page(seen)
            places = (i for i, node in enumerate(found) if node.name == _LAST_HEADER)
            start = script.first(places, _LAST_HEADER)
            cells = [node.name for node in found[start:] if node.role == "cell"]
            yield script.stop(cells[column])

        return run

    return [Instance({"product": p.title}, answer_is(fact(p)), play(p)) for p in _products(name, 4)]


def _set_stock_field(seen: str, nth: int, text: str) -> Script:
    seen = yield from refill(seen, "", text, role="spinbutton", after=_LAST_HEADER, nth=nth)
    return (yield from click(seen, "button", "Save"))


def _review_author() -> list[Instance]:
    def play(review: Review) -> Play:
        def run(seen: str):
            seen = yield from open_menu(seen, "Content", "Reviews")
            seen = yield from choose(seen, "Status:", "Requires moderation")
            seen = yield from click(seen, "button", "Search")
            found = yield from read_page(seen)
            title = review.product.title
            start = script.first((i for i, n in enumerate(found) if n.name == title), title)
            cells = (n.name for n in found[start:] if n.role == "cell" and n.name != title)
            yield script.stop(script.first(cells, "cell"))

        return run

    pending = [review for review in tables().reviews if not review.is_approved]
    return [
        Instance({"product": r.product.title}, answer_has(r.customer.name), play(r))
        for r in Dice("admin author").sample(pending, 4)
    ]


def _voucher_end() -> list[Instance]:
    def play(name: str) -> Play:
        def run(seen: str):
            seen = yield from open_menu(seen, "Offers", "Vouchers")
            seen = yield from click(seen, "link", name)
            found = yield from read_page(seen)
            day = value_after(found, "End datetime", "cell").removesuffix(", midnight")
            yield script.stop(_iso(day))

        return run

    return [
        Instance({"code": v.code}, answer_has(v.last_day.isoformat()), play(v.name))
        for v in VOUCHERS[:5]
    ]


# Finding a page.


def _order_page() -> list[Instance]:
    def play(order: Order) -> Play:
        def run(seen: str):
            yield from open_order(seen, order)
            yield script.stop()

        return run

    return [
        Instance({"order": o.number}, ends_at(f"{ADMIN}/orders/{o.number}/"), play(o))
        for o in _orders("page", 4)
    ]


def _customer_page() -> list[Instance]:
    def play(customer: Customer) -> Play:
        def run(seen: str):
            yield from _open_customer(seen, customer)
            yield script.stop()

        return run

    return [
        Instance({"email": c.email}, ends_at(f"{ADMIN}/users/{c.id}/"), play(c))
        for c in _customers("page", 4)
    ]


# Changing orders.


def _change_status() -> list[Instance]:
    def play(order: Order, status: str) -> Play:
        def run(seen: str):
            seen = yield from open_order(seen, order)
            seen = yield from choose(seen, "New order status", status)
            yield from click(seen, "button", "Change status")
            yield script.stop()

        return run

    following = {"Pending": ("Being processed", "Cancelled"), "Being processed": ("Complete",)}
    made = []
    for index, order in enumerate(_orders("status", 6, *following)):
        choices = following[order.status]
        status = choices[index % len(choices)]
        table = "[...document.querySelectorAll('table')].find(t => t.innerText.includes('Time of'))"
        check = page_has(f"{ADMIN}/orders/{order.number}/", status, locator=f"{table}.innerText")
        values = {"order": order.number, "status": status}
        made.append(Instance(values, check, play(order, status)))
    return made


_NOTES = (
    "Customer asked for delivery after six in the evening",
    "Parcel was returned, call the customer",
    "Pack as a present, no invoice in the parcel",
    "Address confirmed by telephone",
)


def _add_note() -> list[Instance]:
    def play(order: Order, note: str) -> Play:
        def run(seen: str):
            seen = yield from open_order(seen, order)
            seen = yield from click(seen, "link", "Notes")
            seen = yield from fill(seen, "Message", note)
            yield from click(seen, "button", "Save note")
            yield script.stop()

        return run

    return [
        Instance(
            {"order": order.number, "note": note},
            page_has(f"{ADMIN}/orders/{order.number}/", note, locator="document.body.textContent"),
            play(order, note),
        )
        for order, note in zip(_orders("note", 4), _NOTES, strict=True)
    ]


# Changing products.


def _set_price() -> list[Instance]:
    def play(product: Product, price: str) -> Play:
        def run(seen: str):
            seen = yield from _open_stock(seen, product)
            yield from _set_stock_field(seen, _PRICE_FIELD, price)
            yield script.stop()

        return run

    made = []
    prices = ("12.40", "37.90", "8.15", "64.25")
    for product, price in zip(_products("price", 4), prices, strict=True):
        locator = "document.querySelector('.product_main .price_color').innerText"
        check = page_is(SHOP + product.path, locator, f"${price}")
        values = {"product": product.title, "upc": product.upc, "price": price}
        made.append(Instance(values, check, play(product, price)))
    return made


def _set_stock() -> list[Instance]:
    def play(product: Product, count: int) -> Play:
        def run(seen: str):
            seen = yield from _open_stock(seen, product)
            yield from _set_stock_field(seen, _STOCK_FIELD, str(count))
            yield script.stop()

        return run

    made = []
    for product, count in zip(_products("stock", 4), (33, 17, 205, 58), strict=True):
        text = f"({count} available)"
        values = {"product": product.title, "upc": product.upc, "count": count}
        made.append(Instance(values, page_has(SHOP + product.path, text), play(product, count)))
    return made


def _rename_product() -> list[Instance]:
    def play(product: Product, title: str) -> Play:
        def run(seen: str):
            seen = yield from open_product(seen, product)
            seen = yield from refill(seen, "Title", title)
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    made = []
    for product, line in zip(
        _products("rename", 4), ("Solstice", "Marble", "Cinder", "Aurora"), strict=True
    ):
        title = product.title.replace(product.line, line)
        check = page_is(SHOP + product.path, "document.querySelector('h1').innerText", title)
        values = {"product": product.title, "title": title}
        made.append(Instance(values, check, play(product, title)))
    return made


def _hide_product() -> list[Instance]:
    def play(product: Product) -> Play:
        def run(seen: str):
            seen = yield from open_product(seen, product)
            seen = yield from click(seen, "checkbox", "Is public")
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    locator = "document.querySelector('#id_is_public').checked ? 'public' : 'hidden'"
    return [
        Instance(
            {"product": p.title},
            page_is(f"{ADMIN}/catalogue/products/{p.id}/", locator, "hidden"),
            play(p),
        )
        for p in _products("hide", 4)
    ]


# Reviews and content.


def _judge_review(review: Review, status: str) -> Play:
    def run(seen: str):
        seen = yield from _open_review(seen, review)
        seen = yield from choose(seen, "Status:", status)
        yield from click(seen, "button", "Save")
        yield script.stop()

    return run


def _review_values(review: Review) -> dict[str, object]:
    return {
        "title": review.title,
        "customer": review.customer.name,
        "product": review.product.title,
    }


def _approve() -> list[Instance]:
    return [
        Instance(
            _review_values(r),
            page_has(f"{SHOP}{r.product.path}reviews/", r.customer.name, r.title, r.body),
            _judge_review(r, "Approved"),
        )
        for r in _reviews("approve", 4, is_approved=False)
    ]


def _reject() -> list[Instance]:
    made = []
    for review in _reviews("reject", 4, is_approved=True):
        there = f"document.body.innerText.includes({review.customer.name!r}) ? 'there' : 'gone'"
        check = page_is(SHOP + review.product.path, there, "gone")
        made.append(Instance(_review_values(review), check, _judge_review(review, "Rejected")))
    return made


def _new_page() -> list[Instance]:
    def play(title: str, url: str, text: str) -> Play:
        def run(seen: str):
            seen = yield from open_menu(seen, "Content", "Pages")
            seen = yield from click(seen, "link", "Create new page")
            seen = yield from fill(seen, "Title", title)
            seen = yield from fill(seen, "URL", url)
            seen = yield from fill(seen, "Content", text)
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    pages = (
        ("Opening hours", "/opening-hours/", "The showroom is open on Saturdays from 10 to 16."),
        ("Repairs", "/repairs/", "Send in what is broken. We answer with a price in a week."),
        ("Jobs", "/jobs/", "We are looking for a packer in Riverside."),
        ("Gift wrapping", "/gift-wrapping/", "Write the word present into the notes."),
    )
    return [
        Instance(
            {"title": title, "url": url, "text": text},
            page_has(SHOP + url, text),
            play(title, url, text),
        )
        for title, url, text in pages
    ]


def _new_category() -> list[Instance]:
    def play(name: str, parent: str) -> Play:
        def run(seen: str):
            seen = yield from open_menu(seen, "Catalogue", "Categories")
            seen = yield from click(seen, "link", "Create new category")
            seen = yield from fill(seen, "Name", name)
            seen = yield from choose(seen, "Relative to", parent)
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    categories = (
        ("Teapots", "Kitchen"),
        ("Bird Feeders", "Garden"),
        ("Desk Clocks", "Office"),
        ("Skipping Ropes", "Sport"),
    )
    made = []
    for name, parent in categories:
        # The tree of categories at the side of the shop: names in order, a parent before its own.
        links = "[...document.querySelectorAll('.side_categories a')].map(a => a.innerText.trim())"
        check = page_has(f"{SHOP}/catalogue/", f"{parent}/{name}", locator=f"{links}.join('/')")
        made.append(Instance({"name": name, "parent": parent}, check, play(name, parent)))
    return made


def _new_partner() -> list[Instance]:
    def play(name: str) -> Play:
        def run(seen: str):
            seen = yield from open_menu(seen, "Fulfilment", "Partners")
            seen = yield from click(seen, "link", "Create new partner")
            seen = yield from fill(seen, "Name", name)
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    names = ("Lakeside Depot", "Southport Stores", "Old Mill Warehouse", "Westfield Hall")
    return [
        Instance({"name": name}, page_has(f"{ADMIN}/partners/", name), play(name)) for name in names
    ]


def _new_range() -> list[Instance]:
    def play(name: str, text: str) -> Play:
        def run(seen: str):
            seen = yield from open_menu(seen, "Catalogue", "Ranges")
            seen = yield from click(seen, "link", "Create new range")
            seen = yield from fill(seen, "Name", name)
            seen = yield from fill(seen, "Description", text)
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    ranges = (
        ("Autumn picks", "Warm things for shorter days"),
        ("Under the roof", "Whatever a new flat needs first"),
        ("Writers", "Paper, pens and light"),
        ("On the road", "Small things for long trips"),
    )
    return [
        Instance({"name": name, "text": text}, page_has(f"{ADMIN}/ranges/", name), play(name, text))
        for name, text in ranges
    ]


def _new_voucher() -> list[Instance]:
    def play(name: str, code: str, end: str, offer: str) -> Play:
        def run(seen: str):
            seen = yield from open_menu(seen, "Offers", "Vouchers")
            seen = yield from click(seen, "link", "Create new voucher")
            seen = yield from fill(seen, "Name", name)
            seen = yield from fill(seen, "Code", code)
            seen = yield from fill(seen, "End datetime", f"{end} 00:00:00")
            seen = yield from click(seen, "option", f"Offer for voucher '{offer}'")
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    vouchers = (
        ("Newsletter readers", "NEWS24", "2024-07-31", "Spring welcome"),
        ("Staff", "STAFF24", "2024-12-31", "Friends of the shop"),
        ("Back again", "AGAIN24", "2024-09-30", "Loyal customers"),
        ("Late summer", "LATE24", "2024-10-15", "Garden days"),
    )
    return [
        Instance(
            {"name": name, "code": code, "end": end, "offer": offer},
            page_has(f"{ADMIN}/vouchers/", name, code),
            play(name, code, end, offer),
        )
        for name, code, end, offer in vouchers
    ]


_TEMPLATES: dict[int, tuple[str, Callable[[], Sequence[Instance]]]] = {
    0: (
        "What is the email address of the customer {customer}?",
        lambda: _customer_fact("email", "Email", lambda customer: customer.email),
    ),
    1: (
        "How many orders has the customer {customer} placed? Answer with the number only.",
        lambda: _customer_fact(
            "orders",
            "Number of orders",
            lambda customer: str(len(tables().orders_of(customer))),
            exact=True,
        ),
    ),
    2: (
        "How much has the customer {customer} spent with us in all, in dollars? Write it as the "
        "page does.",
        lambda: _customer_fact("spent", "Total spent", _spent),
    ),
    3: ("Who placed order {order}?", _order_customer),
    4: ("On which day was order {order} placed? Answer like 2023-01-31.", _order_day),
    5: (
        'How many of our orders have the status "{status}"? Answer with the number only.',
        _status_count,
    ),
    6: (
        "How many orders were placed from {first} to {last}, both days included? Answer with the "
        "number only.",
        _revenue,
    ),
    7: (
        "How many pieces of the {product} do we have in stock, according to the dashboard? Answer "
        "with the number only.",
        lambda: _stock_fact("in stock", lambda p: str(p.stock), _STOCK),
    ),
    8: (
        "Which partner delivers the {product}? Answer with the name only.",
        lambda: _stock_fact("partner", lambda p: p.partner, _PARTNER),
    ),
    9: ("A review of the {product} waits for moderation. Which customer wrote it?", _review_author),
    10: (
        "What is the last day of the voucher with the code {code}? Answer like 2023-01-31.",
        _voucher_end,
    ),
    11: ("Open the page of order {order} in the dashboard.", _order_page),
    12: ("Open the page of the customer with the address {email} in the dashboard.", _customer_page),
    13: ('Change the status of order {order} to "{status}".', _change_status),
    14: ('Add this note to order {order}: "{note}"', _add_note),
    15: ("Change the price of the {product} ({upc}) to ${price}.", _set_price),
    16: (
        "We counted: there are {count} pieces of the {product} ({upc}). Correct the number in "
        "stock.",
        _set_stock,
    ),
    17: ('Change the title of the product "{product}" to "{title}".', _rename_product),
    18: ("Take the {product} out of the shop, without deleting it: it is not public for now.", _hide_product),
    19: (
        'Approve the review "{title}" that {customer} wrote of the {product}.',
        _approve,
    ),
    20: (
        'Reject the review "{title}" that {customer} wrote of the {product}.',
        _reject,
    ),
    21: ('Make a page with the title "{title}" at the URL {url} with the text "{text}"', _new_page),
    22: ('Make a new category "{name}" below {parent}.', _new_category),
    23: ('Add a partner with the name "{name}".', _new_partner),
    24: ('Make a range of products with the name "{name}" and the description "{text}".', _new_range),
    25: (
        'Make a voucher "{name}" with the code {code} that ends on {end}. It gives what the voucher '
        '"{offer}" gives.',
        _new_voucher,
    ),
}  # fmt: skip
