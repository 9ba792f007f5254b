"""Tasks that change the basket, the account and the reviews: one function for each template."""

import functools

from agentgym_envs.webarena.embedded.script import (
    Script,
    choose,
    click,
    doing,
    fill,
    fill_all,
)
from agentgym_envs.webarena.embedded.shopping_plays import (
    BASKET,
    SHOP,
    open_account,
    open_basket,
    open_order,
    open_product,
    put_in_basket,
)
from agentgym_envs.webarena.embedded.task import (
    Instance,
    all_of,
    page_has,
    page_is,
    page_lacks,
)
from agentgym_envs.webarena.sites.shop.tables import (
    NEXT_ORDER_NUMBER,
    Order,
    Product,
    Wishlist,
    tables,
)

_ADDRESSES = f"{SHOP}/accounts/addresses/"
_WISHLISTS = f"{SHOP}/accounts/wishlists/"


def add_to_basket(product: Product) -> Instance:
    """One of a product."""
    return Instance(
        {"product": product.title},
        page_has(BASKET, product.title),
        doing(functools.partial(put_in_basket, product=product)),
    )


def _set_quantity(seen: str, product: Product, count: int) -> Script:
    seen = yield from fill(
        seen, "", str(count), after=product.title, role="spinbutton", is_empty=False
    )
    return (yield from click(seen, "button", "Update", after=product.title))


def _has_quantity(product: Product, count: int):
    rows = "[...document.querySelectorAll('.basket-items')]"
    row = f"{rows}.find(r => r.innerText.includes({product.title!r}))"
    return page_is(BASKET, f"{row}?.querySelector('input[type=number]').value", str(count))


def add_many(product: Product, count: int) -> Instance:
    """Several of a product that is not in the basket."""

    def way(seen: str) -> Script:
        seen = yield from put_in_basket(seen, product)
        seen = yield from open_basket(seen)
        return (yield from _set_quantity(seen, product, count))

    values = {"count": count, "product": product.title}
    return Instance(values, _has_quantity(product, count), doing(way))


def change_quantity(product: Product, count: int) -> Instance:
    """Of a product that is in the basket."""

    def way(seen: str) -> Script:
        seen = yield from open_basket(seen)
        return (yield from _set_quantity(seen, product, count))

    values = {"count": count, "product": product.title}
    return Instance(values, _has_quantity(product, count), doing(way))


def remove(product: Product, other: Product) -> Instance:
    """One of the two products in the basket."""

    def way(seen: str) -> Script:
        seen = yield from open_basket(seen)
        return (yield from click(seen, "link", "Remove", after=product.title))

    check = all_of(page_lacks(BASKET, product.title), page_has(BASKET, other.title))
    return Instance({"product": product.title}, check, doing(way))


def voucher(code: str) -> Instance:
    """Is used for the basket."""

    def way(seen: str) -> Script:
        seen = yield from open_basket(seen)
        seen = yield from click(seen, "link", "I have a voucher code")
        return (yield from fill(seen, "Code", code, enter=True))

    return Instance({"code": code}, page_has(BASKET, code), doing(way))


def reorder(order: Order) -> Instance:
    """Everything of an earlier order."""

    def way(seen: str) -> Script:
        seen = yield from open_order(seen, order)
        return (yield from click(seen, "button", "Re-order all items"))

    titles = [product.title for product, _ in order.lines]
    return Instance({"order": order.number}, page_has(BASKET, *titles), doing(way))


def buy(street: str) -> Instance:
    """The basket, sent to one of the customer's addresses."""

    def way(seen: str) -> Script:
        seen = yield from open_basket(seen)
        seen = yield from click(seen, "link", "Proceed to checkout")
        seen = yield from click(seen, "button", "Ship to", after=street)
        seen = yield from click(seen, "link", "Continue")
        return (yield from click(seen, "button", "Place order"))

    titles = [product.title for product, _ in tables().basket]
    page = f"{SHOP}/accounts/orders/{NEXT_ORDER_NUMBER}/"
    return Instance({"street": street}, page_has(page, street, *titles), doing(way))


def wish(product: Product, wishlist: Wishlist) -> Instance:
    """A product comes on a wish list."""

    def way(seen: str) -> Script:
        seen = yield from open_product(seen, product)
        seen = yield from click(seen, "link", "Add to wish list")
        return (yield from click(seen, "link", f"Add to '{wishlist.name}' wish list"))

    return Instance(
        {"product": product.title, "wishlist": wishlist.name},
        page_has(f"{_WISHLISTS}{wishlist.key}/", product.title),
        doing(way),
    )


def new_wishlist(name: str) -> Instance:
    """An empty one."""

    def way(seen: str) -> Script:
        seen = yield from open_account(seen, "Wish Lists")
        seen = yield from click(seen, "link", "Create a new wish list")
        seen = yield from fill(seen, "Name *", name, is_empty=False)
        return (yield from click(seen, "button", "Save"))

    return Instance({"name": name}, page_has(_WISHLISTS, name), doing(way))


def write_review(product: Product, score: int, title: str, body: str) -> Instance:
    """Of a product; the customer's reviews wait for nobody."""

    def way(seen: str) -> Script:
        seen = yield from open_product(seen, product)
        seen = yield from click(seen, "link", "Write a review")
        seen = yield from fill(seen, "Title *", title)
        seen = yield from choose(seen, "Score", str(score))
        seen = yield from fill(seen, "Body *", body)
        return (yield from click(seen, "button", "Save review"))

    word = ("Zero", "One", "Two", "Three", "Four", "Five")[score]
    # The product's own page shows three reviews at most; the inmost article is the review.
    page = f"{SHOP}{product.path}reviews/"
    article = f"[...document.querySelectorAll('article')].filter(a => a.innerText.includes({title!r})).pop()"
    return Instance(
        {"product": product.title, "score": score, "title": title, "body": body},
        all_of(
            page_has(page, title, body),
            page_has(page, word, locator=f"{article}?.innerHTML"),
        ),
        doing(way),
    )


def add_address(street: str, city: str, state: str, postcode: str) -> Instance:
    """In the address book."""

    def way(seen: str) -> Script:
        seen = yield from open_account(seen, "Address Book")
        seen = yield from click(seen, "link", "Add a new address")
        texts = {
            "First name *": tables().customer.first_name,
            "Last name *": tables().customer.last_name,
            "First line of address *": street,
            "City *": city,
            "State/County": state,
            "Post/Zip-code *": postcode,
        }
        seen = yield from fill_all(seen, texts)
        seen = yield from choose(seen, "Country *", "United States")
        return (yield from click(seen, "button", "Save"))

    return Instance(
        {"street": street, "city": city, "state": state, "postcode": postcode},
        page_has(_ADDRESSES, street, city, postcode),
        doing(way),
    )


def edit_address(street: str, new: str) -> Instance:
    """Of the address book."""

    def way(seen: str) -> Script:
        seen = yield from open_account(seen, "Address Book")
        seen = yield from click(seen, "link", "Edit", after=street)
        seen = yield from fill(seen, "First line of address", new, is_empty=False)
        return (yield from click(seen, "button", "Save"))

    check = all_of(page_has(_ADDRESSES, new), page_lacks(_ADDRESSES, street))
    return Instance({"street": street, "new": new}, check, doing(way))


def rename(last_name: str) -> Instance:
    """The customer gets another last name."""

    def way(seen: str) -> Script:
        seen = yield from open_account(seen, "Edit profile")
        seen = yield from fill(seen, "Last name", last_name, is_empty=False)
        return (yield from click(seen, "button", "Save"))

    whole = f"{tables().customer.first_name} {last_name}"
    page = f"{SHOP}/accounts/profile/"
    return Instance({"last_name": last_name}, page_has(page, whole), doing(way))
