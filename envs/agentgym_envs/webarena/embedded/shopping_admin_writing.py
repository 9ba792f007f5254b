"""Tasks that change orders, products, reviews and offers: one function for each template."""

from agentgym_envs.webarena.embedded.script import Script, choose, click, doing, fill
from agentgym_envs.webarena.embedded.shopping_admin_plays import (
    ADMIN,
    create,
    open_order,
    open_product,
    open_review,
    open_stock,
    save,
    set_stock_field,
)
from agentgym_envs.webarena.embedded.shopping_plays import SHOP
from agentgym_envs.webarena.embedded.task import (
    Instance,
    page_has,
    page_is,
    page_lacks,
)
from agentgym_envs.webarena.sites.shop.tables import Order, Product, Review
from agentgym_envs.webarena.tasks import Evaluation

_STOCK_FIELD, _PRICE_FIELD = 0, 2  # among the numbers of a product's stock


def change_status(order: Order, status: str) -> Instance:
    """Of an order."""

    def way(seen: str) -> Script:
        seen = yield from open_order(seen, order)
        seen = yield from choose(seen, "New order status", status)
        return (yield from click(seen, "button", "Change status"))

    table = "[...document.querySelectorAll('table')].find(t => t.innerText.includes('Time of'))"
    page = f"{ADMIN}/orders/{order.number}/"
    return Instance(
        {"order": order.number, "status": status},
        page_has(page, status, locator=f"{table}.innerText"),
        doing(way),
    )


def add_note(order: Order, note: str) -> Instance:
    """To an order."""

    def way(seen: str) -> Script:
        seen = yield from open_order(seen, order)
        seen = yield from click(seen, "link", "Notes")
        seen = yield from fill(seen, "Message", note)
        return (yield from click(seen, "button", "Save note"))

    page = f"{ADMIN}/orders/{order.number}/"
    return Instance(
        {"order": order.number, "note": note},
        page_has(page, note, locator="document.body.textContent"),
        doing(way),
    )


def set_price(product: Product, price: str) -> Instance:
    """Of a product, in dollars."""

    def way(seen: str) -> Script:
        seen = yield from open_stock(seen, product)
        return (yield from set_stock_field(seen, _PRICE_FIELD, price))

    locator = "document.querySelector('.product_main .price_color').innerText"
    return Instance(
        {"product": product.title, "upc": product.upc, "price": price},
        page_is(SHOP + product.path, locator, f"${price}"),
        doing(way),
    )


def set_stock(product: Product, count: int) -> Instance:
    """How many pieces of a product there are."""

    def way(seen: str) -> Script:
        seen = yield from open_stock(seen, product)
        return (yield from set_stock_field(seen, _STOCK_FIELD, str(count)))

    return Instance(
        {"product": product.title, "upc": product.upc, "count": count},
        page_has(SHOP + product.path, f"({count} available)"),
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
        page_is(SHOP + product.path, "document.querySelector('h1').innerText", title),
        doing(way),
    )


def hide_product(product: Product) -> Instance:
    """It is not public any more."""

    def way(seen: str) -> Script:
        seen = yield from open_product(seen, product)
        seen = yield from click(seen, "checkbox", "Is public")
        return (yield from save(seen))

    locator = "document.querySelector('#id_is_public').checked ? 'public' : 'hidden'"
    page = f"{ADMIN}/catalogue/products/{product.id}/"
    return Instance({"product": product.title}, page_is(page, locator, "hidden"), doing(way))


def _judge(review: Review, status: str, check: Evaluation) -> Instance:
    def way(seen: str) -> Script:
        seen = yield from open_review(seen, review)
        seen = yield from choose(seen, "Status:", status)
        return (yield from save(seen))

    values = {
        "title": review.title,
        "customer": review.customer.name,
        "product": review.product.title,
    }
    return Instance(values, check, doing(way))


def approve(review: Review) -> Instance:
    """A review that waits for moderation."""
    page = f"{SHOP}{review.product.path}reviews/"
    check = page_has(page, review.customer.name, review.title, review.body)
    return _judge(review, "Approved", check)


def reject(review: Review) -> Instance:
    """A review that everybody sees."""
    check = page_lacks(SHOP + review.product.path, review.customer.name)
    return _judge(review, "Rejected", check)


def new_page(title: str, url: str, text: str) -> Instance:
    """Of text."""

    def way(seen: str) -> Script:
        texts = {"Title": title, "URL": url, "Content": text}
        seen = yield from create(seen, "Content", "Pages", "page", texts)
        return (yield from save(seen))

    values = {"title": title, "url": url, "text": text}
    return Instance(values, page_has(SHOP + url, text), doing(way))


def new_category(name: str, parent: str) -> Instance:
    """Below another one."""

    def way(seen: str) -> Script:
        seen = yield from create(seen, "Catalogue", "Categories", "category", {"Name": name})
        seen = yield from choose(seen, "Relative to", parent)
        return (yield from save(seen))

    # The tree of categories at the side of the shop: names in order, a parent before its own.
    links = "[...document.querySelectorAll('.side_categories a')].map(a => a.innerText.trim())"
    return Instance(
        {"name": name, "parent": parent},
        page_has(f"{SHOP}/catalogue/", f"{parent}/{name}", locator=f"{links}.join('/')"),
        doing(way),
    )


def new_partner(name: str) -> Instance:
    """Who delivers."""

    def way(seen: str) -> Script:
        seen = yield from create(seen, "Fulfilment", "Partners", "partner", {"Name": name})
        return (yield from save(seen))

    return Instance({"name": name}, page_has(f"{ADMIN}/partners/", name), doing(way))


def new_range(name: str, text: str) -> Instance:
    """Of products."""

    def way(seen: str) -> Script:
        texts = {"Name": name, "Description": text}
        seen = yield from create(seen, "Catalogue", "Ranges", "range", texts)
        return (yield from save(seen))

    values = {"name": name, "text": text}
    return Instance(values, page_has(f"{ADMIN}/ranges/", name), doing(way))


def new_voucher(name: str, code: str, end: str, offer: str) -> Instance:
    """That gives what another one gives."""

    def way(seen: str) -> Script:
        texts = {"Name": name, "Code": code, "End datetime": f"{end} 00:00:00"}
        seen = yield from create(seen, "Offers", "Vouchers", "voucher", texts)
        seen = yield from click(seen, "option", f"Offer for voucher '{offer}'")
        return (yield from save(seen))

    values = {"name": name, "code": code, "end": end, "offer": offer}
    return Instance(values, page_has(f"{ADMIN}/vouchers/", name, code), doing(way))
