"""Tasks for the customer that change the basket, the account and the reviews."""

from collections.abc import Sequence

from agentgym_sites.clock import EPISODE_START
from agentgym_sites.shop.tables import VOUCHERS, Product, tables
from agentgym_sites.tasks import shopping_edits as edits
from agentgym_sites.tasks.script import Way, choose, click, doing, fill, fill_all, in_order
from agentgym_sites.tasks.shopping_edits import BASKET, CUSTOMER, SITE
from agentgym_sites.tasks.shopping_plays import (
    PER_TEMPLATE,
    dice,
    open_account,
    open_basket,
    open_order,
    open_product,
    put_in_basket,
    some_products,
)
from agentgym_sites.tasks.task import (
    Rows,
    Templates,
    added,
    changed,
    changes,
    impossible,
    refusing,
)

TEMPLATES = Templates(SITE)

# Tasks about the basket.


@TEMPLATES(11, "Put the {product} into my basket.")
def _add_to_basket() -> Rows:
    for product in some_products("basket", 5, stock=7):
        check = changes(edits.in_basket(product, 1))
        yield {"product": product.title}, check, doing(put_in_basket(product))


def _set_quantity(product: Product, count: int) -> Way:
    return in_order(
        fill("", str(count), after=product.title, role="spinbutton", is_empty=False),
        click("button", "Update", after=product.title),
    )


@TEMPLATES(12, "Put {count} pieces of the {product} into my basket.")
def _add_many() -> Rows:
    for product, count in zip(some_products("many", stock=12), (3, 4, 5, 6), strict=True):
        play = doing(put_in_basket(product), open_basket(), _set_quantity(product, count))
        values = {"count": count, "product": product.title}
        yield values, changes(edits.in_basket(product, count)), play


@TEMPLATES(13, "Change my basket so that it has {count} pieces of the {product}.")
def _change_quantity() -> Rows:
    for (product, _), count in zip(2 * tables().basket, (4, 5, 6, 9), strict=True):
        row = dict(basket_id=BASKET, product_id=product.id)
        check = changes(changed(SITE, "basket_line", {"quantity": count}, **row))
        play = doing(open_basket(), _set_quantity(product, count))
        yield {"count": count, "product": product.title}, check, play


@TEMPLATES(14, "Take the {product} out of my basket and leave the rest.")
def _remove() -> Rows:
    for product, _ in tables().basket:
        play = doing(open_basket(), click("link", "Remove", after=product.title))
        yield {"product": product.title}, changes(edits.out_of_basket(product)), play


def _use_voucher(code: str) -> Way:
    return in_order(
        open_basket(), click("link", "I have a voucher code"), fill("Code", code, enter=True)
    )


@TEMPLATES(15, "Use the voucher code {code} for my basket.")
def _voucher() -> Rows:
    today = EPISODE_START.date()
    for voucher in VOUCHERS:
        code = voucher.code
        # GARDEN5 is not valid for the products in the basket.
        if voucher.first_day <= today <= voucher.last_day and code != "GARDEN5":
            edit = added(SITE, "basket_basket_vouchers", basket_id=BASKET, voucher_id=code)
            yield {"code": code}, changes(edit), doing(_use_voucher(code))
    for voucher in VOUCHERS:
        if voucher.last_day < today:
            yield {"code": voucher.code}, impossible(), refusing(_use_voucher(voucher.code))


@TEMPLATES(16, "Put everything from my order {order} into my basket again.")
def _reorder() -> Rows:
    shop = tables()
    full = [  # orders whose products are in stock and not in the basket
        order
        for order in shop.orders_of(shop.customer)
        if all(product.stock >= quantity + 3 for product, quantity in order.lines)
        and not {product for product, _ in order.lines} & {product for product, _ in shop.basket}
    ]
    for order in dice("reorder").sample(full, PER_TEMPLATE):
        play = doing(open_order(order), click("button", "Re-order all items"))
        check = changes(*(edits.in_basket(product, count) for product, count in order.lines))
        yield {"order": order.number}, check, play


def _streets() -> Sequence[str]:
    """Returns the streets of the customer's addresses."""
    shop = tables()
    return [address.line1 for address in (shop.customer.address, *shop.more_addresses)]


@TEMPLATES(17, "Buy what is in my basket and have it sent to my address at {street}.")
def _buy() -> Rows:
    for street in _streets():
        play = doing(
            open_basket(),
            click("link", "Proceed to checkout"),
            click("button", "Ship to", after=street),
            click("link", "Continue"),
            click("button", "Place order"),
        )
        yield {"street": street}, changes(*edits.bought(tables().basket, street)), play


# Tasks about wish lists and reviews.


@TEMPLATES(18, 'Put the {product} on my wish list "{wishlist}".')
def _wish() -> Rows:
    for product, wishlist in zip(some_products("wish"), 2 * tables().wishlists, strict=True):
        name = wishlist.name
        play = doing(
            open_product(product),
            click("link", "Add to wish list"),
            click("link", f"Add to '{name}' wish list"),
        )
        row = dict(wishlist_id=name, product_id=product.id, title=product.title, quantity=1)
        check = changes(added(SITE, "wishlists_line", **row))
        yield {"product": product.title, "wishlist": name}, check, play


@TEMPLATES(19, 'Make a new wish list with the name "{name}".')
def _new_wishlist() -> Rows:
    for name in ("Summer house", "For the office", "Wedding of Ines", "Camping trip"):
        play = doing(
            open_account("Wish Lists"),
            click("link", "Create a new wish list"),
            fill("Name *", name, is_empty=False),
            click("button", "Save"),
        )
        row = dict(owner_id=CUSTOMER, name=name, visibility="Private")
        yield {"name": name}, changes(added(SITE, "wishlists_wishlist", **row)), play


_OPINIONS = (
    (5, "Better than my old one", "I use it every morning and would not give it away again."),
    (2, "Too small for us", "It is well made but half the size that I expected from the picture."),
    (4, "Good present", "My father liked it at once and has used it every day since."),
    (3, "Honest and plain", "Nothing special, but it does what it should for a fair price."),
)


@TEMPLATES(
    20,
    'Write a review of the {product} with {score} of 5 points, the title "{title}" and the '
    'text "{body}"',
)
def _write_review() -> Rows:
    for product, (score, title, body) in zip(some_products("review"), _OPINIONS, strict=True):
        play = doing(
            open_product(product),
            click("link", "Write a review"),
            fill("Title *", title),
            choose("Score", str(score)),
            fill("Body *", body),
            click("button", "Save review"),
        )
        words = {"score": score, "title": title, "body": body}
        # the customer's reviews are approved automatically
        row = dict(user_id=CUSTOMER, status=1, product_id=product.id, **words)
        check = changes(added(SITE, "reviews_productreview", **row))
        yield {"product": product.title, **words}, check, play


# Tasks about the account.

_NEW_ADDRESSES = (
    ("17 Mill Lane", "Ithaca", "NY", "14850"),
    ("203 Station Road", "Boulder", "CO", "80302"),
    ("9 Orchard Close", "Madison", "WI", "53703"),
    ("61 Quarry Hill", "Duluth", "MN", "55802"),
)


@TEMPLATES(
    21,
    "Add an address to my address book: {street}, {city}, {state} {postcode}, United States. "
    "My name is as in my profile.",
)
def _add_address() -> Rows:
    for street, city, state, postcode in _NEW_ADDRESSES:
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
        row = edits.address_row(street, city, state, postcode)
        check = changes(added(SITE, "address_useraddress", user_id=CUSTOMER, **row))
        yield {"street": street, "city": city, "state": state, "postcode": postcode}, check, play


@TEMPLATES(22, "I moved within the town: in my address book, change {street} to {new}.")
def _edit_address() -> Rows:
    new_streets = ("8 Rowan Way", "77 Tannery Row", "140 Depot Street")
    for street, new in zip(_streets(), new_streets, strict=True):
        play = doing(
            open_account("Address Book"),
            click("link", "Edit", after=street),
            fill("First line of address", new, is_empty=False),
            click("button", "Save"),
        )
        edit = changed(SITE, "address_useraddress", {"line1": new}, user_id=CUSTOMER, line1=street)
        yield {"street": street, "new": new}, changes(edit), play
    values = {"street": "31 Granary Lane", "new": "16 Cooper Street"}
    yield values, impossible(), refusing(open_account("Address Book"))


@TEMPLATES(23, "I married: change my last name to {last_name}.")
def _rename() -> Rows:
    for last_name in ("Ashdown", "Vanterpool", "Kilbride", "Oyelaran"):
        play = doing(
            open_account("Edit profile"),
            fill("Last name", last_name, is_empty=False),
            click("button", "Save"),
        )
        row = dict(email=tables().customer.email)
        check = changes(changed(SITE, "auth_user", {"last_name": last_name}, **row))
        yield {"last_name": last_name}, check, play
