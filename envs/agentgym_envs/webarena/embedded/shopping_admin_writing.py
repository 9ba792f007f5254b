"""Tasks that change orders, products, reviews and offers: one function for each template."""

import functools

from agentgym_envs.webarena.embedded import shopping_edits as edits
from agentgym_envs.webarena.embedded.script import Script, choose, click, doing, fill
from agentgym_envs.webarena.embedded.shopping_admin_plays import (
    create,
    open_order,
    open_product,
    open_review,
    open_stock,
    save,
    set_stock_field,
)
from agentgym_envs.webarena.embedded.task import (
    Instance,
    added,
    changes,
    impossible,
    refusing,
)
from agentgym_envs.webarena.sites.shop.tables import Order, Product, Review

_STOCK_FIELD, _PRICE_FIELD = 0, 2  # among the numbers of a product's stock


def change_status(order: Order, status: str) -> Instance:
    """Of an order."""

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
    """Of an order whose status is the last one."""
    way = functools.partial(open_order, order=order)
    return Instance({"order": order.number, "status": status}, impossible(), refusing(way))


def add_note(order: Order, note: str) -> Instance:
    """To an order."""

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
    """Of a product, in dollars."""

    def way(seen: str) -> Script:
        seen = yield from open_stock(seen, product)
        return (yield from set_stock_field(seen, _PRICE_FIELD, price))

    return Instance(
        {"product": product.title, "upc": product.upc, "price": price},
        changes(edits.stock_field(product, "price", float(price))),
        doing(way),
    )


def set_stock(product: Product, count: int) -> Instance:
    """How many pieces of a product there are."""

    def way(seen: str) -> Script:
        seen = yield from open_stock(seen, product)
        return (yield from set_stock_field(seen, _STOCK_FIELD, str(count)))

    return Instance(
        {"product": product.title, "upc": product.upc, "count": count},
        changes(edits.stock_field(product, "num_in_stock", count)),
        doing(way),
    )


def rename_product(product: Product, line: str) -> Instance:
    """It gets the title of another line of products."""
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
    """It is not public any more."""

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
    """A review that waits for moderation."""
    return _judge(review, "Approved", 1)


def reject(review: Review) -> Instance:
    """A review that everybody sees."""
    return _judge(review, "Rejected", 2)


def new_page(title: str, url: str, text: str) -> Instance:
    """Of text."""

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
    """Below another one."""

    def way(seen: str) -> Script:
        seen = yield from create(seen, "Catalogue", "Categories", "category", {"Name": name})
        seen = yield from choose(seen, "Relative to", parent)
        return (yield from save(seen))

    # `path` is the name of the category above; see `sites/shop/content.py`.
    row = dict(name=name, path=parent, is_public=1, ancestors_are_public=1)
    check = changes(added(edits.SITE, "catalogue_category", **row))
    return Instance({"name": name, "parent": parent}, check, doing(way))


def new_partner(name: str) -> Instance:
    """Who delivers."""

    def way(seen: str) -> Script:
        seen = yield from create(seen, "Fulfilment", "Partners", "partner", {"Name": name})
        return (yield from save(seen))

    check = changes(added(edits.SITE, "partner_partner", name=name))
    return Instance({"name": name}, check, doing(way))


def new_range(name: str, text: str) -> Instance:
    """Of products."""

    def way(seen: str) -> Script:
        texts = {"Name": name, "Description": text}
        seen = yield from create(seen, "Catalogue", "Ranges", "range", texts)
        return (yield from save(seen))

    values = {"name": name, "text": text}
    check = changes(added(edits.SITE, "offer_range", name=name, description=text))
    return Instance(values, check, doing(way))


def new_voucher(name: str, code: str, end: str, offer: str) -> Instance:
    """That gives what another one gives."""

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
