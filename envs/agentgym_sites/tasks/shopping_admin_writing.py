"""Tasks that change orders, products, reviews and offers, with one function per template."""

import functools

from agentgym_sites.shop.tables import Order, Product, Review
from agentgym_sites.tasks import shopping_edits as edits
from agentgym_sites.tasks.script import Script, choose, click, doing, fill
from agentgym_sites.tasks.shopping_admin_plays import (
    create,
    open_order,
    open_product,
    open_review,
    open_stock,
    save,
    set_stock_field,
)
from agentgym_sites.tasks.task import (
    Instance,
    added,
    changes,
    impossible,
    refusing,
)

_STOCK_FIELD, _PRICE_FIELD = 0, 2  # indices among the number fields of a product's stock


def change_status(order: Order, status: str) -> Instance:
    """Returns a task to change the status of an order."""

    def way(seen: str) -> Script:
        seen = yield from open_order(seen, order)
        seen = yield from choose(seen, "New order status", status)
        return (yield from click(seen, "button", "Change status"))

    return Instance(
        {"order": order.number, "status": status},
        changes(edits.order_status(order, status)),
        doing(way),
    )


def change_final_status(order: Order, status: str) -> Instance:
    """Returns an impossible task: to change the status of an order whose status is final."""
    way = functools.partial(open_order, order=order)
    return Instance({"order": order.number, "status": status}, impossible(), refusing(way))


def add_note(order: Order, note: str) -> Instance:
    """Returns a task to add a note to an order."""

    def way(seen: str) -> Script:
        seen = yield from open_order(seen, order)
        seen = yield from click(seen, "link", "Notes")
        seen = yield from fill(seen, "Message", note)
        return (yield from click(seen, "button", "Save note"))

    return Instance(
        {"order": order.number, "note": note},
        changes(edits.order_note(order, note)),
        doing(way),
    )


def set_price(product: Product, price: str) -> Instance:
    """Returns a task to set the price of a product, in dollars."""

    def way(seen: str) -> Script:
        seen = yield from open_stock(seen, product)
        return (yield from set_stock_field(seen, _PRICE_FIELD, price))

    return Instance(
        {"product": product.title, "upc": product.upc, "price": price},
        changes(edits.stock_field(product, "price", float(price))),
        doing(way),
    )


def set_stock(product: Product, count: int) -> Instance:
    """Returns a task to set the number of pieces of a product in stock."""

    def way(seen: str) -> Script:
        seen = yield from open_stock(seen, product)
        return (yield from set_stock_field(seen, _STOCK_FIELD, str(count)))

    return Instance(
        {"product": product.title, "upc": product.upc, "count": count},
        changes(edits.stock_field(product, "num_in_stock", count)),
        doing(way),
    )


def rename_product(product: Product, line: str) -> Instance:
    """Returns a task to replace the name of the product line in a product's title."""
    title = product.title.replace(product.line, line)

    def way(seen: str) -> Script:
        seen = yield from open_product(seen, product)
        seen = yield from fill(seen, "Title", title, is_empty=False)
        return (yield from save(seen))

    return Instance(
        {"product": product.title, "title": title},
        changes(edits.product_field(product, "title", title)),
        doing(way),
    )


def hide_product(product: Product) -> Instance:
    """Returns a task to hide a product from customers."""

    def way(seen: str) -> Script:
        seen = yield from open_product(seen, product)
        seen = yield from click(seen, "checkbox", "Is public")
        return (yield from save(seen))

    check = changes(edits.product_field(product, "is_public", 0))
    return Instance({"product": product.title}, check, doing(way))


def _judge(review: Review, status: str, number: int) -> Instance:
    def way(seen: str) -> Script:
        seen = yield from open_review(seen, review)
        seen = yield from choose(seen, "Status:", status)
        return (yield from save(seen))

    values = {
        "title": review.title,
        "customer": review.customer.name,
        "product": review.product.title,
    }
    return Instance(values, changes(edits.review_status(review, number)), doing(way))


def approve(review: Review) -> Instance:
    """Returns a task to approve a review that waits for moderation."""
    return _judge(review, "Approved", 1)


def reject(review: Review) -> Instance:
    """Returns a task to reject a review that all visitors see."""
    return _judge(review, "Rejected", 2)


def new_page(title: str, url: str, text: str) -> Instance:
    """Returns a task to add a page of text."""

    def way(seen: str) -> Script:
        texts = {"Title": title, "URL": url, "Content": text}
        seen = yield from create(seen, "Content", "Pages", "page", texts)
        return (yield from save(seen))

    values = {"title": title, "url": url, "text": text}
    check = changes(
        added(edits.SITE, "django_flatpage", url=url, title=title, content=text),
        added(edits.SITE, "django_flatpage_sites", flatpage_id=url, site_id=1),
    )
    return Instance(values, check, doing(way))


def new_category(name: str, parent: str) -> Instance:
    """Returns a task to add a category below an existing category."""

    def way(seen: str) -> Script:
        seen = yield from create(seen, "Catalogue", "Categories", "category", {"Name": name})
        seen = yield from choose(seen, "Relative to", parent)
        return (yield from save(seen))

    # The value of `path` is the name of the parent category; see `agentgym_sites/shop/content.py`.
    row = dict(name=name, path=parent, is_public=1, ancestors_are_public=1)
    check = changes(added(edits.SITE, "catalogue_category", **row))
    return Instance({"name": name, "parent": parent}, check, doing(way))


def new_partner(name: str) -> Instance:
    """Returns a task to add a supplier."""

    def way(seen: str) -> Script:
        seen = yield from create(seen, "Fulfilment", "Partners", "partner", {"Name": name})
        return (yield from save(seen))

    check = changes(added(edits.SITE, "partner_partner", name=name))
    return Instance({"name": name}, check, doing(way))


def new_range(name: str, text: str) -> Instance:
    """Returns a task to add a range of products."""

    def way(seen: str) -> Script:
        texts = {"Name": name, "Description": text}
        seen = yield from create(seen, "Catalogue", "Ranges", "range", texts)
        return (yield from save(seen))

    values = {"name": name, "text": text}
    check = changes(added(edits.SITE, "offer_range", name=name, description=text))
    return Instance(values, check, doing(way))


def new_voucher(name: str, code: str, end: str, offer: str) -> Instance:
    """Returns a task to add a voucher with the same offer as an existing voucher."""

    def way(seen: str) -> Script:
        texts = {"Name": name, "Code": code, "End datetime": f"{end} 00:00:00"}
        seen = yield from create(seen, "Offers", "Vouchers", "voucher", texts)
        seen = yield from click(seen, "option", f"Offer for voucher '{offer}'")
        return (yield from save(seen))

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
    return Instance(values, check, doing(way))
