"""Tasks in the shop, as the customer who is logged in."""

import datetime
import functools
import re
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
    all_of,
    answer_has,
    answer_is,
    ends_at,
    from_template,
    page_has,
    page_is,
)
from agentgym_envs.webarena.sites.chance import Dice
from agentgym_envs.webarena.sites.shop.tables import (
    NEXT_ORDER_NUMBER,
    VOUCHERS,
    Order,
    Product,
    Review,
    category_path,
    tables,
)
from agentgym_envs.webarena.sites.shop.words import SHELVES, Shelf

GROUP = "shopping"
SHOP = "__SHOPPING__"
BASKET = f"{SHOP}/basket/"
_ROWS = "[...document.querySelectorAll('.basket-items')]"


def tasks() -> list[EmbeddedTask]:
    """All of them; a template keeps its number."""
    made: list[EmbeddedTask] = []
    for number, (text, instances) in _TEMPLATES.items():
        made += from_template(GROUP, number, text, instances())
    return made


# Ways through the shop, shared with the tasks across sites.


def open_product(seen: str, product: Product) -> Script:
    """Searches for a product by its title and opens its page; from the top of any page."""
    seen = yield from fill(seen, "Search", product.title, enter=True)
    return (yield from click(seen, "link", product.title))


def put_in_basket(seen: str, product: Product) -> Script:
    """Opens a product and puts one of it into the basket."""
    seen = yield from open_product(seen, product)
    return (yield from click(seen, "button", "Add to basket"))


def _open_account(seen: str, page: str) -> Script:
    seen = yield from click(seen, "link", "Account")
    return (yield from click(seen, "link", page))


def _open_order(seen: str, order: Order) -> Script:
    seen = yield from _open_account(seen, "Order History")
    # One order with that number: the shop goes to it at once.
    return (yield from fill(seen, "Order number", order.number, enter=True))


def _sorted_shelf(seen: str, shelf: Shelf, order: str) -> Script:
    seen = yield from click(seen, "link", shelf.name)
    return (yield from choose(seen, "Sort by", order))


# Choosing what tasks are about.


@functools.cache
def _products(name: str, count: int, *, stock: int = 0) -> tuple[Product, ...]:
    """Different products, none of which is in the basket or on a wish list."""
    shop = tables()
    taken = {product for product, _ in shop.basket}
    taken |= {product for wishlist in shop.wishlists for product in wishlist.products}
    free = [p for p in shop.products if p.stock >= stock and p not in taken]
    return tuple(Dice(f"shopping {name}").sample(free, count))


def _orders(name: str, count: int) -> list[Order]:
    shop = tables()
    cheap = [order for order in shop.orders_of(shop.customer) if order.cents < 100_000]
    return Dice(f"shopping {name}").sample(cheap, count)


def _reviews(name: str, count: int) -> list[Review]:
    """Reviews of products that have no other with the same title."""
    shop = tables()
    clear = [
        review
        for review in shop.reviews
        if review.is_approved
        and sum(other.title == review.title for other in shop.reviews_of(review.product)) == 1
    ]
    return Dice(f"shopping {name}").sample(clear, count)


def _shelves(name: str, count: int) -> list[Shelf]:
    return Dice(f"shopping {name}").sample(SHELVES, count)


# Questions.


def _price() -> list[Instance]:
    def play(product: Product) -> Play:
        def run(seen: str):
            seen = yield from open_product(seen, product)
            price = value_after(script.nodes(seen)[15:], product.title, "StaticText")
            yield script.stop(price.removeprefix("$"))

        return run

    return [
        Instance({"product": p.title}, answer_has(p.price), play(p)) for p in _products("price", 5)
    ]


def _attribute() -> list[Instance]:
    def play(product: Product, name: str) -> Play:
        def run(seen: str):
            seen = yield from open_product(seen, product)
            yield script.stop(value_after((yield from read_page(seen)), name, "cell"))

        return run

    made = []
    for index, product in enumerate(_products("attribute", 8)):
        name, value = product.attributes[2 + index % 4]
        values = {"attribute": name, "product": product.title}
        made.append(Instance(values, answer_has(value), play(product, name)))
    return made


def _extreme(order: str, pick: Callable) -> list[Instance]:
    def play(shelf: Shelf) -> Play:
        def run(seen: str):
            seen = yield from _sorted_shelf(seen, shelf, order)
            _, first = yield from script.look_for(seen, "link", "", after="Sort by")
            yield script.stop(first.name)

        return run

    made = []
    for shelf in _shelves(order, 4):
        product = pick(tables().shelf_products(shelf.name), key=lambda p: p.cents)
        made.append(Instance({"category": shelf.name}, answer_has(product.title), play(shelf)))
    return made


def _order_fact(name: str, fact: Callable[[Order], str], label: str) -> list[Instance]:
    def play(order: Order) -> Play:
        def run(seen: str):
            seen = yield from _open_order(seen, order)
            value = value_after((yield from read_page(seen)), label, "cell|StaticText")
            yield script.stop(value.removeprefix("$"))

        return run

    return [
        Instance({"order": order.number}, answer_has(fact(order)), play(order))
        for order in _orders(name, 4)
    ]


def _spending() -> list[Instance]:
    def play(first: datetime.date, last: datetime.date) -> Play:
        def run(seen: str):
            seen = yield from _open_account(seen, "Order History")
            seen = yield from fill(seen, "From", first.isoformat())
            seen = yield from fill(seen, "To", last.isoformat(), enter=True)
            cells = [node.name for node in (yield from read_page(seen)) if node.role == "cell"]
            sums = [cell[1:].replace(",", "") for cell in cells if re.fullmatch(r"\$[\d,.]+", cell)]
            yield script.stop(f"{sum(map(float, sums)):.2f}")

        return run

    made = []
    shop = tables()
    for year, month in ((2023, 5), (2023, 9), (2023, 12), (2024, 1), (2023, 7), (2023, 10)):
        first = datetime.date(year, month, 1)
        last = (first + datetime.timedelta(days=31)).replace(day=1) - datetime.timedelta(days=1)
        orders = [o for o in shop.orders_of(shop.customer) if first <= o.placed.date() <= last]
        cents = sum(order.cents for order in orders)
        if not 0 < cents < 100_000:
            continue
        values = {"month": first.strftime("%B %Y")}
        made.append(Instance(values, answer_has(f"{cents / 100:.2f}"), play(first, last)))
    return made


def _reviewer() -> list[Instance]:
    def play(review: Review) -> Play:
        def run(seen: str):
            seen = yield from open_product(seen, review.product)
            found = yield from read_page(seen)
            places = (i for i, node in enumerate(found) if node.name == review.title)
            start = script.first(places, review.title)
            yield script.stop(value_after(found[start:], "Reviewed by", "StaticText"))

        return run

    return [
        Instance(
            {"product": r.product.title, "title": r.title}, answer_has(r.customer.name), play(r)
        )
        for r in _reviews("reviewer", 4)
    ]


def _page_question() -> list[Instance]:
    def play(page: str, pattern: str) -> Play:
        def run(seen: str):
            seen = yield from _open_account(seen, page)  # a short page: its foot is near
            text = " ".join(node.name for node in script.nodes(seen))
            match = re.search(pattern, text)
            if match is None:
                raise script.ScriptError(f"{pattern} is not in {text}")
            yield script.stop(match[1])

        return run

    facts = (
        ("within how many days I may send things back", "Returns", r"within (\d+) days", "45"),
        ("what the phone number of the shop is", "Contact", r"call (\S+)", "555-0142"),
        ("since which year the shop exists", "About us", r"since (\d+)", "2014"),
        ("within how many working days parcels leave", "Delivery", r"within (\d+) working", "2"),
    )
    return [
        Instance({"question": question}, answer_has(answer), play(page, pattern))
        for question, page, pattern, answer in facts
    ]


# Finding a page.


def _shelf_page() -> list[Instance]:
    def play(shelf: Shelf, order: str) -> Play:
        def run(seen: str):
            yield from _sorted_shelf(seen, shelf, order)
            yield script.stop()

        return run

    orders = (
        ("price, highest first", "Price high to low", "price-desc"),
        ("title, from A to Z", "Title A to Z", "title-asc"),
        ("customer rating", "Customer rating", "rating"),
        ("price, lowest first", "Price low to high", "price-asc"),
    )
    made = []
    for shelf, (words, option, key) in zip(_shelves("page", 4), orders, strict=True):
        values = {"category": shelf.name, "order": words}
        url = f"{SHOP}{category_path(shelf)}?sort_by={key}"
        made.append(Instance(values, ends_at(url), play(shelf, option)))
    return made


def _product_page() -> list[Instance]:
    def play(product: Product) -> Play:
        def run(seen: str):
            seen = yield from fill(seen, "Search", product.upc, enter=True)
            yield from click(seen, "link", product.title)
            yield script.stop()

        return run

    return [Instance({"upc": p.upc}, ends_at(SHOP + p.path), play(p)) for p in _products("page", 4)]


# Changing the basket.


def _add_to_basket() -> list[Instance]:
    def play(product: Product) -> Play:
        def run(seen: str):
            yield from put_in_basket(seen, product)
            yield script.stop()

        return run

    return [
        Instance({"product": p.title}, page_has(BASKET, p.title), play(p))
        for p in _products("basket", 5, stock=7)
    ]


def quantity_in_basket(product: Product) -> str:
    """A script that finds the number of a product in the basket."""
    row = f"{_ROWS}.find(r => r.innerText.includes({product.title!r}))"
    return f"{row}?.querySelector('input[type=number]').value"


def _set_quantity(seen: str, product: Product, count: int) -> Script:
    seen = yield from refill(seen, "", str(count), after=product.title, role="spinbutton")
    return (yield from click(seen, "button", "Update", after=product.title))


def _add_many() -> list[Instance]:
    def play(product: Product, count: int) -> Play:
        def run(seen: str):
            seen = yield from put_in_basket(seen, product)
            seen = yield from click(seen, "link|button", "View basket")
            yield from _set_quantity(seen, product, count)
            yield script.stop()

        return run

    made = []
    for count, product in enumerate(_products("many", 4, stock=12), start=3):
        check = page_is(BASKET, quantity_in_basket(product), str(count))
        values = {"count": count, "product": product.title}
        made.append(Instance(values, check, play(product, count)))
    return made


def _change_quantity() -> list[Instance]:
    def play(product: Product, count: int) -> Play:
        def run(seen: str):
            seen = yield from click(seen, "link|button", "View basket")
            yield from _set_quantity(seen, product, count)
            yield script.stop()

        return run

    (first, _), (second, _) = tables().basket
    made = []
    for product, count in ((first, 4), (second, 5), (first, 6), (second, 9)):
        check = page_is(BASKET, quantity_in_basket(product), str(count))
        values = {"count": count, "product": product.title}
        made.append(Instance(values, check, play(product, count)))
    return made


def _remove() -> list[Instance]:
    def play(product: Product) -> Play:
        def run(seen: str):
            seen = yield from click(seen, "link|button", "View basket")
            yield from click(seen, "link", "Remove", after=product.title)
            yield script.stop()

        return run

    made = []
    for product, other in zip(
        *[[p for p, _ in line] for line in (tables().basket, tables().basket[::-1])], strict=True
    ):
        gone = f"document.body.innerText.includes({product.title!r}) ? 'there' : 'gone'"
        check = all_of(page_is(BASKET, gone, "gone"), page_has(BASKET, other.title))
        made.append(Instance({"product": product.title}, check, play(product)))
    return made


def _voucher() -> list[Instance]:
    def play(code: str) -> Play:
        def run(seen: str):
            seen = yield from click(seen, "link|button", "View basket")
            seen = yield from click(seen, "link", "I have a voucher code")
            yield from fill(seen, "Code", code, enter=True)
            yield script.stop()

        return run

    today = datetime.date(2024, 3, 1)
    valid = [v for v in VOUCHERS if v.first_day <= today <= v.last_day and v.code != "GARDEN5"]
    return [
        Instance({"code": voucher.code}, page_has(BASKET, voucher.code), play(voucher.code))
        for voucher in valid
    ]


def _reorder() -> list[Instance]:
    def play(order: Order) -> Play:
        def run(seen: str):
            seen = yield from _open_order(seen, order)
            yield from click(seen, "button", "Re-order all items")
            yield script.stop()

        return run

    shop = tables()
    full = [
        order
        for order in shop.orders_of(shop.customer)
        if all(product.stock >= quantity + 3 for product, quantity in order.lines)
        and not {product for product, _ in order.lines} & {product for product, _ in shop.basket}
    ]
    return [
        Instance(
            {"order": order.number},
            page_has(BASKET, *(product.title for product, _ in order.lines)),
            play(order),
        )
        for order in Dice("shopping reorder").sample(full, 4)
    ]


def _buy() -> list[Instance]:
    def play(street: str) -> Play:
        def run(seen: str):
            seen = yield from click(seen, "link|button", "View basket")
            seen = yield from click(seen, "link", "Proceed to checkout")
            seen = yield from click(seen, "button", "Ship to", after=street)
            seen = yield from click(seen, "link", "Continue")
            yield from click(seen, "button", "Place order")
            yield script.stop()

        return run

    shop = tables()
    titles = [product.title for product, _ in shop.basket]
    order_page = f"{SHOP}/accounts/orders/{NEXT_ORDER_NUMBER}/"
    return [
        Instance(
            {"street": address.line1},
            page_has(order_page, address.line1, *titles),
            play(address.line1),
        )
        for address in (shop.customer.address, *shop.more_addresses)
    ]


# The account.


def _wish() -> list[Instance]:
    def play(product: Product, wishlist: str) -> Play:
        def run(seen: str):
            seen = yield from open_product(seen, product)
            seen = yield from click(seen, "link", "Add to wish list")
            yield from click(seen, "link", f"Add to '{wishlist}' wish list")
            yield script.stop()

        return run

    made = []
    for index, product in enumerate(_products("wish", 4)):
        wishlist = tables().wishlists[index % 2]
        url = f"{SHOP}/accounts/wishlists/{wishlist.key}/"
        values = {"product": product.title, "wishlist": wishlist.name}
        made.append(Instance(values, page_has(url, product.title), play(product, wishlist.name)))
    return made


def _new_wishlist() -> list[Instance]:
    def play(name: str) -> Play:
        def run(seen: str):
            seen = yield from _open_account(seen, "Wish Lists")
            seen = yield from click(seen, "link", "Create a new wish list")
            seen = yield from refill(seen, "Name *", name)
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    url = f"{SHOP}/accounts/wishlists/"
    names = ("Summer house", "For the office", "Wedding of Ines", "Camping trip")
    return [Instance({"name": name}, page_has(url, name), play(name)) for name in names]


_OPINIONS = (
    (5, "Better than my old one", "I use it every morning and would not give it away again."),
    (2, "Too small for us", "It is well made but half the size that I expected from the picture."),
    (4, "Good present", "My father liked it at once and has used it every day since."),
    (3, "Honest and plain", "Nothing special, but it does what it should for a fair price."),
)


def _write_review() -> list[Instance]:
    def play(product: Product, score: int, title: str, body: str) -> Play:
        def run(seen: str):
            seen = yield from open_product(seen, product)
            seen = yield from click(seen, "link", "Write a review")
            seen = yield from fill(seen, "Title *", title)
            seen = yield from choose(seen, "Score", str(score))
            seen = yield from fill(seen, "Body *", body)
            yield from click(seen, "button", "Save review")
            yield script.stop()

        return run

    words = ("Zero", "One", "Two", "Three", "Four", "Five")
    made = []
    for product, (score, title, body) in zip(_products("review", 4), _OPINIONS, strict=True):
        values = {"product": product.title, "score": score, "title": title, "body": body}
        # The product's own page shows three reviews at most; the inmost article is the review.
        url = f"{SHOP}{product.path}reviews/"
        article = (
            "[...document.querySelectorAll('article')]"
            f".filter(a => a.innerText.includes({title!r})).pop()"
        )
        check = all_of(
            page_has(url, title, body),
            page_has(url, words[score], locator=f"{article}?.innerHTML"),
        )
        made.append(Instance(values, check, play(product, score, title, body)))
    return made


_ADDRESSES = (
    ("17 Mill Lane", "Ithaca", "NY", "14850"),
    ("203 Station Road", "Boulder", "CO", "80302"),
    ("9 Orchard Close", "Madison", "WI", "53703"),
    ("61 Quarry Hill", "Duluth", "MN", "55802"),
)


def _add_address() -> list[Instance]:
    def play(street: str, city: str, state: str, postcode: str) -> Play:
        def run(seen: str):
            seen = yield from _open_account(seen, "Address Book")
            seen = yield from click(seen, "link", "Add a new address")
            customer = tables().customer
            seen = yield from fill(seen, "First name *", customer.first_name)
            seen = yield from fill(seen, "Last name *", customer.last_name)
            seen = yield from fill(seen, "First line of address *", street)
            seen = yield from fill(seen, "City *", city)
            seen = yield from fill(seen, "State/County", state)
            seen = yield from fill(seen, "Post/Zip-code *", postcode)
            seen = yield from choose(seen, "Country *", "United States")
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    made = []
    for street, city, state, postcode in _ADDRESSES:
        values = {"street": street, "city": city, "state": state, "postcode": postcode}
        check = page_has(f"{SHOP}/accounts/addresses/", street, city, postcode)
        made.append(Instance(values, check, play(street, city, state, postcode)))
    return made


def _edit_address() -> list[Instance]:
    def play(street: str, new: str) -> Play:
        def run(seen: str):
            seen = yield from _open_account(seen, "Address Book")
            seen = yield from click(seen, "link", "Edit", after=street)
            seen = yield from refill(seen, "First line of address", new)
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    shop = tables()
    streets = [address.line1 for address in (shop.customer.address, *shop.more_addresses)]
    made = []
    for street, new in zip(
        streets, ("8 Rowan Way", "77 Tannery Row", "140 Depot Street"), strict=True
    ):
        gone = f"document.body.innerText.includes({street!r}) ? 'there' : 'gone'"
        url = f"{SHOP}/accounts/addresses/"
        check = all_of(page_has(url, new), page_is(url, gone, "gone"))
        made.append(Instance({"street": street, "new": new}, check, play(street, new)))
    return made


def _rename() -> list[Instance]:
    def play(last_name: str) -> Play:
        def run(seen: str):
            seen = yield from click(seen, "link", "Account")
            seen = yield from click(seen, "link", "Edit profile")
            seen = yield from refill(seen, "Last name", last_name)
            yield from click(seen, "button", "Save")
            yield script.stop()

        return run

    first = tables().customer.first_name
    return [
        Instance(
            {"last_name": name},
            page_has(f"{SHOP}/accounts/profile/", f"{first} {name}"),
            play(name),
        )
        for name in ("Ashdown", "Vanterpool", "Kilbride", "Oyelaran")
    ]


def _basket_total() -> list[Instance]:
    """After putting something in: the sum must be found out, not only the price."""

    def play(product: Product) -> Play:
        def run(seen: str):
            seen = yield from put_in_basket(seen, product)
            seen = yield from click(seen, "link|button", "View basket")
            found = yield from read_page(seen)
            yield script.stop(value_after(found, "Order total", "cell").removeprefix("$"))

        return run

    shop = tables()
    before = sum(product.cents * count for product, count in shop.basket)
    chosen = [p for p in _products("total", 8, stock=7) if p.shelf.department != "Garden"][:4]
    return [
        Instance(
            {"product": p.title},
            all_of(answer_has(f"{(before + p.cents) / 100:.2f}"), page_has(BASKET, p.title)),
            play(p),
        )
        for p in chosen
    ]


def _count_reviews() -> list[Instance]:
    def play(product: Product) -> Play:
        def run(seen: str):
            seen = yield from open_product(seen, product)
            found = yield from read_page(seen)
            yield script.stop(value_after(found, "Number of reviews", "cell"))

        return run

    shop = tables()
    return [
        Instance({"product": p.title}, answer_is(str(len(shop.reviews_of(p)))), play(p))
        for p in _products("count", 4)
    ]


_TEMPLATES: dict[int, tuple[str, Callable[[], Sequence[Instance]]]] = {
    0: ("What does the {product} cost in dollars?", _price),
    1: ('What is given as "{attribute}" for the {product}?', _attribute),
    2: (
        "Which product in the category {category} is the cheapest? Answer with its full name.",
        lambda: _extreme("Price low to high", min),
    ),
    3: (
        "Which product in the category {category} is the most expensive? Answer with its full name.",
        lambda: _extreme("Price high to low", max),
    ),
    4: (
        "What was the total of my order {order}, in dollars?",
        lambda: _order_fact("total", lambda order: order.total, "Order total"),
    ),
    5: (
        "What is the status of my order {order}?",
        lambda: _order_fact("status", lambda order: order.status, "Status"),
    ),
    6: (
        "How much did I spend in this shop in {month} in all, in dollars? Count every order, "
        "whatever became of it.",
        _spending,
    ),
    7: ('Who wrote the review "{title}" of the {product}?', _reviewer),
    8: ("Find out from the pages of the shop {question}.", _page_question),
    9: ("Show me the category {category} sorted by {order}.", _shelf_page),
    10: ("Open the page of the product with the UPC {upc}.", _product_page),
    11: ("Put the {product} into my basket.", _add_to_basket),
    12: ("Put {count} pieces of the {product} into my basket.", _add_many),
    13: ("Change my basket so that it has {count} pieces of the {product}.", _change_quantity),
    14: ("Take the {product} out of my basket and leave the rest.", _remove),
    15: ("Use the voucher code {code} for my basket.", _voucher),
    16: ("Put everything from my order {order} into my basket again.", _reorder),
    17: ("Buy what is in my basket and have it sent to my address at {street}.", _buy),
    18: ('Put the {product} on my wish list "{wishlist}".', _wish),
    19: ('Make a new wish list with the name "{name}".', _new_wishlist),
    20: (
        'Write a review of the {product} with {score} of 5 points, the title "{title}" and the '
        'text "{body}"',
        _write_review,
    ),
    21: (
        "Add an address to my address book: {street}, {city}, {state} {postcode}, United States. "
        "My name is as in my profile.",
        _add_address,
    ),
    22: ("I moved within the town: in my address book, change {street} to {new}.", _edit_address),
    23: ("I married: change my last name to {last_name}.", _rename),
    24: (
        "Put the {product} into my basket and tell me what everything in it costs together, in "
        "dollars.",
        _basket_total,
    ),
    25: (
        "How many reviews by customers does the {product} have? Answer with the number only.",
        _count_reviews,
    ),
}
