"""Tasks that change the basket, the account and the reviews, with one function per template."""

import functools

from agentgym_sites.shop.tables import Order, Product, Wishlist, tables
from agentgym_sites.tasks import shopping_edits as edits
from agentgym_sites.tasks.script import (
    Script,
    choose,
    click,
    doing,
    fill,
    fill_all,
)
from agentgym_sites.tasks.shopping_plays import (
    open_account,
    open_basket,
    open_order,
    open_product,
    put_in_basket,
)
from agentgym_sites.tasks.task import Instance, changes, impossible, refusing


def add_to_basket(product: Product) -> Instance:
    """Returns a task to add one piece of a product to the basket."""
    return Instance(
        {"product": product.title},
        changes(edits.in_basket(product, 1)),
        doing(functools.partial(put_in_basket, product=product)),
    )


def _set_quantity(seen: str, product: Product, count: int) -> Script:
    seen = yield from fill(
        seen, "", str(count), after=product.title, role="spinbutton", is_empty=False
    )
    return (yield from click(seen, "button", "Update", after=product.title))


def add_many(product: Product, count: int) -> Instance:
    """Returns a task to add several pieces of a product that is not in the basket."""

    def way(seen: str) -> Script:
        seen = yield from put_in_basket(seen, product)
        seen = yield from open_basket(seen)
        return (yield from _set_quantity(seen, product, count))

    values = {"count": count, "product": product.title}
    return Instance(values, changes(edits.in_basket(product, count)), doing(way))


def change_quantity(product: Product, count: int) -> Instance:
    """Returns a task to change the quantity of a product in the basket."""

    def way(seen: str) -> Script:
        seen = yield from open_basket(seen)
        return (yield from _set_quantity(seen, product, count))

    values = {"count": count, "product": product.title}
    return Instance(values, changes(edits.basket_quantity(product, count)), doing(way))


def remove(product: Product) -> Instance:
    """Returns a task to remove one of the two products in the basket."""

    def way(seen: str) -> Script:
        seen = yield from open_basket(seen)
        return (yield from click(seen, "link", "Remove", after=product.title))

    check = changes(edits.out_of_basket(product))
    return Instance({"product": product.title}, check, doing(way))


def _use_voucher(seen: str, code: str) -> Script:
    seen = yield from open_basket(seen)
    seen = yield from click(seen, "link", "I have a voucher code")
    return (yield from fill(seen, "Code", code, enter=True))


def voucher(code: str) -> Instance:
    """Returns a task to apply a voucher to the basket."""
    way = functools.partial(_use_voucher, code=code)
    return Instance({"code": code}, changes(edits.on_basket(code)), doing(way))


def expired_voucher(code: str) -> Instance:
    """Returns an impossible task: to apply a voucher that is no longer valid."""
    way = functools.partial(_use_voucher, code=code)
    return Instance({"code": code}, impossible(), refusing(way))


def reorder(order: Order) -> Instance:
    """Returns a task to put all products of an earlier order into the basket again."""

    def way(seen: str) -> Script:
        seen = yield from open_order(seen, order)
        return (yield from click(seen, "button", "Re-order all items"))

    check = changes(*(edits.in_basket(product, count) for product, count in order.lines))
    return Instance({"order": order.number}, check, doing(way))


def buy(street: str) -> Instance:
    """Returns a task to order the content of the basket for delivery to one of the customer's
    addresses.
    """

    def way(seen: str) -> Script:
        seen = yield from open_basket(seen)
        seen = yield from click(seen, "link", "Proceed to checkout")
        seen = yield from click(seen, "button", "Ship to", after=street)
        seen = yield from click(seen, "link", "Continue")
        return (yield from click(seen, "button", "Place order"))

    check = changes(*edits.bought(tables().basket, street))
    return Instance({"street": street}, check, doing(way))


def wish(product: Product, wishlist: Wishlist) -> Instance:
    """Returns a task to add a product to a wish list."""

    def way(seen: str) -> Script:
        seen = yield from open_product(seen, product)
        seen = yield from click(seen, "link", "Add to wish list")
        return (yield from click(seen, "link", f"Add to '{wishlist.name}' wish list"))

    return Instance(
        {"product": product.title, "wishlist": wishlist.name},
        changes(edits.wished(product, wishlist.name)),
        doing(way),
    )


def new_wishlist(name: str) -> Instance:
    """Returns a task to create an empty wish list."""

    def way(seen: str) -> Script:
        seen = yield from open_account(seen, "Wish Lists")
        seen = yield from click(seen, "link", "Create a new wish list")
        seen = yield from fill(seen, "Name *", name, is_empty=False)
        return (yield from click(seen, "button", "Save"))

    return Instance({"name": name}, changes(edits.new_wishlist(name)), doing(way))


def write_review(product: Product, score: int, title: str, body: str) -> Instance:
    """Returns a task to write a review of a product; the customer's reviews need no approval."""

    def way(seen: str) -> Script:
        seen = yield from open_product(seen, product)
        seen = yield from click(seen, "link", "Write a review")
        seen = yield from fill(seen, "Title *", title)
        seen = yield from choose(seen, "Score", str(score))
        seen = yield from fill(seen, "Body *", body)
        return (yield from click(seen, "button", "Save review"))

    return Instance(
        {"product": product.title, "score": score, "title": title, "body": body},
        changes(edits.review(product, score, title, body)),
        doing(way),
    )


def add_address(street: str, city: str, state: str, postcode: str) -> Instance:
    """Returns a task to add an address to the address book."""

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
        changes(edits.address(street, city, state, postcode)),
        doing(way),
    )


def edit_address(street: str, new: str) -> Instance:
    """Returns a task to change an address in the address book."""

    def way(seen: str) -> Script:
        seen = yield from open_account(seen, "Address Book")
        seen = yield from click(seen, "link", "Edit", after=street)
        seen = yield from fill(seen, "First line of address", new, is_empty=False)
        return (yield from click(seen, "button", "Save"))

    check = changes(edits.moved(street, new))
    return Instance({"street": street, "new": new}, check, doing(way))


def edit_no_address(street: str, new: str) -> Instance:
    """Returns an impossible task: to change an address that is not in the address book."""
    way = functools.partial(open_account, page="Address Book")
    return Instance({"street": street, "new": new}, impossible(), refusing(way))


def rename(last_name: str) -> Instance:
    """Returns a task to change the last name of the customer."""

    def way(seen: str) -> Script:
        seen = yield from open_account(seen, "Edit profile")
        seen = yield from fill(seen, "Last name", last_name, is_empty=False)
        return (yield from click(seen, "button", "Save"))

    return Instance({"last_name": last_name}, changes(edits.renamed(last_name)), doing(way))
