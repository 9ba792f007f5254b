"""Tasks that change the basket, the account and the reviews, with one function per template."""

from agentgym_sites.shop.tables import Order, Product, Wishlist, tables
from agentgym_sites.tasks import shopping_edits as edits
from agentgym_sites.tasks.script import Way, choose, click, doing, fill, fill_all, in_order
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
        doing(put_in_basket(product)),
    )


def _set_quantity(product: Product, count: int) -> Way:
    return in_order(
        fill("", str(count), after=product.title, role="spinbutton", is_empty=False),
        click("button", "Update", after=product.title),
    )


def add_many(product: Product, count: int) -> Instance:
    """Returns a task to add several pieces of a product that is not in the basket."""
    play = doing(put_in_basket(product), open_basket(), _set_quantity(product, count))
    values = {"count": count, "product": product.title}
    return Instance(values, changes(edits.in_basket(product, count)), play)


def change_quantity(product: Product, count: int) -> Instance:
    """Returns a task to change the quantity of a product in the basket."""
    play = doing(open_basket(), _set_quantity(product, count))
    values = {"count": count, "product": product.title}
    return Instance(values, changes(edits.basket_quantity(product, count)), play)


def remove(product: Product) -> Instance:
    """Returns a task to remove one of the two products in the basket."""
    play = doing(open_basket(), click("link", "Remove", after=product.title))
    check = changes(edits.out_of_basket(product))
    return Instance({"product": product.title}, check, play)


def _use_voucher(code: str) -> Way:
    return in_order(
        open_basket(), click("link", "I have a voucher code"), fill("Code", code, enter=True)
    )


def voucher(code: str) -> Instance:
    """Returns a task to apply a voucher to the basket."""
    return Instance({"code": code}, changes(edits.on_basket(code)), doing(_use_voucher(code)))


def expired_voucher(code: str) -> Instance:
    """Returns an impossible task: to apply a voucher that is no longer valid."""
    return Instance({"code": code}, impossible(), refusing(_use_voucher(code)))


def reorder(order: Order) -> Instance:
    """Returns a task to put all products of an earlier order into the basket again."""
    play = doing(open_order(order), click("button", "Re-order all items"))
    check = changes(*(edits.in_basket(product, count) for product, count in order.lines))
    return Instance({"order": order.number}, check, play)


def buy(street: str) -> Instance:
    """Returns a task to order the content of the basket for delivery to one of the customer's
    addresses.
    """
    play = doing(
        open_basket(),
        click("link", "Proceed to checkout"),
        click("button", "Ship to", after=street),
        click("link", "Continue"),
        click("button", "Place order"),
    )
    check = changes(*edits.bought(tables().basket, street))
    return Instance({"street": street}, check, play)


def wish(product: Product, wishlist: Wishlist) -> Instance:
    """Returns a task to add a product to a wish list."""
    play = doing(
        open_product(product),
        click("link", "Add to wish list"),
        click("link", f"Add to '{wishlist.name}' wish list"),
    )
    return Instance(
        {"product": product.title, "wishlist": wishlist.name},
        changes(edits.wished(product, wishlist.name)),
        play,
    )


def new_wishlist(name: str) -> Instance:
    """Returns a task to create an empty wish list."""
    play = doing(
        open_account("Wish Lists"),
        click("link", "Create a new wish list"),
        fill("Name *", name, is_empty=False),
        click("button", "Save"),
    )
    return Instance({"name": name}, changes(edits.new_wishlist(name)), play)


def write_review(product: Product, score: int, title: str, body: str) -> Instance:
    """Returns a task to write a review of a product; the customer's reviews need no approval."""
    play = doing(
        open_product(product),
        click("link", "Write a review"),
        fill("Title *", title),
        choose("Score", str(score)),
        fill("Body *", body),
        click("button", "Save review"),
    )
    return Instance(
        {"product": product.title, "score": score, "title": title, "body": body},
        changes(edits.review(product, score, title, body)),
        play,
    )


def add_address(street: str, city: str, state: str, postcode: str) -> Instance:
    """Returns a task to add an address to the address book."""
    texts = {
        "First name *": tables().customer.first_name,
        "Last name *": tables().customer.last_name,
        "First line of address *": street,
        "City *": city,
        "State/County": state,
        "Post/Zip-code *": postcode,
    }
    play = doing(
        open_account("Address Book"),
        click("link", "Add a new address"),
        fill_all(texts),
        choose("Country *", "United States"),
        click("button", "Save"),
    )
    return Instance(
        {"street": street, "city": city, "state": state, "postcode": postcode},
        changes(edits.address(street, city, state, postcode)),
        play,
    )


def edit_address(street: str, new: str) -> Instance:
    """Returns a task to change an address in the address book."""
    play = doing(
        open_account("Address Book"),
        click("link", "Edit", after=street),
        fill("First line of address", new, is_empty=False),
        click("button", "Save"),
    )
    check = changes(edits.moved(street, new))
    return Instance({"street": street, "new": new}, check, play)


def edit_no_address(street: str, new: str) -> Instance:
    """Returns an impossible task: to change an address that is not in the address book."""
    return Instance(
        {"street": street, "new": new}, impossible(), refusing(open_account("Address Book"))
    )


def rename(last_name: str) -> Instance:
    """Returns a task to change the last name of the customer."""
    play = doing(
        open_account("Edit profile"),
        fill("Last name", last_name, is_empty=False),
        click("button", "Save"),
    )
    return Instance({"last_name": last_name}, changes(edits.renamed(last_name)), play)
