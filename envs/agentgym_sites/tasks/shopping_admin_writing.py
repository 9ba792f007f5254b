"""Tasks that change orders, products, reviews and offers, with one function per template."""

from agentgym_sites.shop.tables import Order, Product, Review
from agentgym_sites.tasks import shopping_edits as edits
from agentgym_sites.tasks.script import choose, click, doing, fill
from agentgym_sites.tasks.shopping_admin_plays import (
    create,
    open_order,
    open_product,
    open_review,
    open_stock,
    save,
    set_stock_field,
)
from agentgym_sites.tasks.task import Instance, added, changes, impossible, refusing

_STOCK_FIELD, _PRICE_FIELD = 0, 2  # indices among the number fields of a product's stock


def change_status(order: Order, status: str) -> Instance:
    """Returns a task to change the status of an order."""
    play = doing(
        open_order(order), choose("New order status", status), click("button", "Change status")
    )
    return Instance(
        {"order": order.number, "status": status},
        changes(edits.order_status(order, status)),
        play,
    )


def change_final_status(order: Order, status: str) -> Instance:
    """Returns an impossible task: to change the status of an order whose status is final."""
    return Instance(
        {"order": order.number, "status": status}, impossible(), refusing(open_order(order))
    )


def add_note(order: Order, note: str) -> Instance:
    """Returns a task to add a note to an order."""
    play = doing(
        open_order(order),
        click("link", "Notes"),
        fill("Message", note),
        click("button", "Save note"),
    )
    return Instance(
        {"order": order.number, "note": note},
        changes(edits.order_note(order, note)),
        play,
    )


def set_price(product: Product, price: str) -> Instance:
    """Returns a task to set the price of a product, in dollars."""
    play = doing(open_stock(product), set_stock_field(_PRICE_FIELD, price))
    return Instance(
        {"product": product.title, "upc": product.upc, "price": price},
        changes(edits.stock_field(product, "price", float(price))),
        play,
    )


def set_stock(product: Product, count: int) -> Instance:
    """Returns a task to set the number of pieces of a product in stock."""
    play = doing(open_stock(product), set_stock_field(_STOCK_FIELD, str(count)))
    return Instance(
        {"product": product.title, "upc": product.upc, "count": count},
        changes(edits.stock_field(product, "num_in_stock", count)),
        play,
    )


def rename_product(product: Product, line: str) -> Instance:
    """Returns a task to replace the name of the product line in a product's title."""
    title = product.title.replace(product.line, line)

    play = doing(open_product(product), fill("Title", title, is_empty=False), save())
    return Instance(
        {"product": product.title, "title": title},
        changes(edits.product_field(product, "title", title)),
        play,
    )


def hide_product(product: Product) -> Instance:
    """Returns a task to hide a product from customers."""
    play = doing(open_product(product), click("checkbox", "Is public"), save())
    check = changes(edits.product_field(product, "is_public", 0))
    return Instance({"product": product.title}, check, play)


def _judge(review: Review, status: str, number: int) -> Instance:
    play = doing(open_review(review), choose("Status:", status), save())
    values = {
        "title": review.title,
        "customer": review.customer.name,
        "product": review.product.title,
    }
    return Instance(values, changes(edits.review_status(review, number)), play)


def approve(review: Review) -> Instance:
    """Returns a task to approve a review that waits for moderation."""
    return _judge(review, "Approved", 1)


def reject(review: Review) -> Instance:
    """Returns a task to reject a review that all visitors see."""
    return _judge(review, "Rejected", 2)


def new_page(title: str, url: str, text: str) -> Instance:
    """Returns a task to add a page of text."""

    texts = {"Title": title, "URL": url, "Content": text}
    play = doing(create("Content", "Pages", "page", texts), save())
    values = {"title": title, "url": url, "text": text}
    check = changes(
        added(edits.SITE, "django_flatpage", url=url, title=title, content=text),
        added(edits.SITE, "django_flatpage_sites", flatpage_id=url, site_id=1),
    )
    return Instance(values, check, play)


def new_category(name: str, parent: str) -> Instance:
    """Returns a task to add a category below an existing category."""
    play = doing(
        create("Catalogue", "Categories", "category", {"Name": name}),
        choose("Relative to", parent),
        save(),
    )
    # The value of `path` is the name of the parent category; see `agentgym_sites/shop/content.py`.
    row = dict(name=name, path=parent, is_public=1, ancestors_are_public=1)
    check = changes(added(edits.SITE, "catalogue_category", **row))
    return Instance({"name": name, "parent": parent}, check, play)


def new_partner(name: str) -> Instance:
    """Returns a task to add a supplier."""
    play = doing(create("Fulfilment", "Partners", "partner", {"Name": name}), save())
    check = changes(added(edits.SITE, "partner_partner", name=name))
    return Instance({"name": name}, check, play)


def new_range(name: str, text: str) -> Instance:
    """Returns a task to add a range of products."""

    texts = {"Name": name, "Description": text}
    play = doing(create("Catalogue", "Ranges", "range", texts), save())
    values = {"name": name, "text": text}
    check = changes(added(edits.SITE, "offer_range", name=name, description=text))
    return Instance(values, check, play)


def new_voucher(name: str, code: str, end: str, offer: str) -> Instance:
    """Returns a task to add a voucher with the same offer as an existing voucher."""

    texts = {"Name": name, "Code": code, "End datetime": f"{end} 00:00:00"}
    play = doing(
        create("Offers", "Vouchers", "voucher", texts),
        click("option", f"Offer for voucher '{offer}'"),
        save(),
    )
    values = {"name": name, "code": code, "end": end, "offer": offer}
    check = changes(
        added(edits.SITE, "voucher_voucher", name=name, code=code, end_datetime=end),
        added(
            edits.SITE,
            "voucher_voucher_offers",
            voucher_id=code,
            conditionaloffer_id=f"Offer for voucher '{offer}'",
        ),
    )
    return Instance(values, check, play)
