"""Tasks for the administrator that change orders, products and reviews, or add something."""

from collections import Counter

from agentgym_sites.shop.tables import Product, tables
from agentgym_sites.tasks.script import Way, choose, click, doing, fill
from agentgym_sites.tasks.shopping_admin_plays import (
    create,
    open_order,
    open_product,
    open_review,
    open_stock,
    orders,
    products,
    save,
    set_stock_field,
    some,
)
from agentgym_sites.tasks.shopping_edits import SITE
from agentgym_sites.tasks.task import (
    Row,
    Rows,
    Templates,
    added,
    changed,
    changes,
    impossible,
    refusing,
)

TEMPLATES = Templates("shopping_admin")
_ADMINISTRATOR = len(tables().customers) + 1

# Tasks that change orders and products.

_NEXT_STATUSES = {"Pending": ("Being processed", "Cancelled"), "Being processed": ("Complete",)}


@TEMPLATES(13, 'Change the status of order {order} to "{status}".')
def _change_status() -> Rows:
    unfinished = [order for order in tables().orders if order.status in _NEXT_STATUSES]
    for index, order in enumerate(some("status", unfinished, 6)):
        choices = _NEXT_STATUSES[order.status]
        status = choices[index % len(choices)]
        play = doing(
            open_order(order), choose("New order status", status), click("button", "Change status")
        )
        edit = changed(SITE, "order_order", {"status": status}, number=order.number)
        yield {"order": order.number, "status": status}, changes(edit), play
    # The status of a complete or cancelled order is final.
    finished = [order for order in tables().orders if order.status not in _NEXT_STATUSES]
    for order in some("final status", finished, 2):
        status = "Complete" if order.status == "Cancelled" else "Cancelled"
        yield {"order": order.number, "status": status}, impossible(), refusing(open_order(order))


_NOTES = (
    "Customer asked for delivery after six in the evening",
    "Parcel was returned, call the customer",
    "Pack as a present, no invoice in the parcel",
    "Address confirmed by telephone",
)


@TEMPLATES(14, 'Add this note to order {order}: "{note}"')
def _add_note() -> Rows:
    for order, note in zip(orders("note"), _NOTES, strict=True):
        play = doing(
            open_order(order),
            click("link", "Notes"),
            fill("Message", note),
            click("button", "Save note"),
        )
        row = dict(order_id=order.number, user_id=_ADMINISTRATOR, message=note)
        check = changes(added(SITE, "order_ordernote", **row))
        yield {"order": order.number, "note": note}, check, play


def _set_stock(product: Product, name: str, field: str, value: object, nth: int) -> Row:
    """Returns a task to set the nth number field of a product's stock, whose name is `field`."""
    values = {"product": product.title, "upc": product.upc, name: value}
    number = float(value) if isinstance(value, str) else value
    edit = changed(SITE, "partner_stockrecord", {field: number}, partner_sku=product.upc)
    return values, changes(edit), doing(open_stock(product), set_stock_field(nth, str(value)))


@TEMPLATES(15, "Change the price of the {product} ({upc}) to ${price}.")
def _change_price() -> Rows:
    for product, price in zip(products("price"), ("12.40", "37.90", "8.15", "64.25"), strict=True):
        yield _set_stock(product, "price", "price", price, nth=2)


@TEMPLATES(
    16,
    "We counted: there are {count} pieces of the {product} ({upc}). Correct the number in stock.",
)
def _change_count() -> Rows:
    for product, count in zip(products("stock"), (33, 17, 205, 58), strict=True):
        yield _set_stock(product, "count", "num_in_stock", count, nth=0)


def _change_product(product: Product, way: Way, **to: object) -> Row:
    """Returns a task to change the row of a product in its form."""
    edit = changed(SITE, "catalogue_product", to, upc=product.upc)
    values = {"product": product.title}
    return values, changes(edit), doing(open_product(product), way, save())


@TEMPLATES(17, 'Change the title of the product "{product}" to "{title}".')
def _rename_product() -> Rows:
    lines = ("Solstice", "Marble", "Cinder", "Aurora")
    for product, line in zip(products("rename"), lines, strict=True):
        title = product.title.replace(product.line, line)
        way = fill("Title", title, is_empty=False)
        values, check, play = _change_product(product, way, title=title)
        yield {**values, "title": title}, check, play


@TEMPLATES(18, "Take the {product} out of the shop, without deleting it: it is not public for now.")
def _hide_product() -> Rows:
    for product in products("hide"):
        yield _change_product(product, click("checkbox", "Is public"), is_public=0)


# Tasks that approve and reject reviews.


def _judge(name: str, status: str, number: int, *, is_approved: bool) -> Rows:
    """Yields tasks about reviews whose title no other review by the same customer has."""
    shop = tables()
    titles = Counter((review.customer.id, review.title) for review in shop.reviews)
    clear = [
        review
        for review in shop.reviews
        if review.is_approved == is_approved and titles[review.customer.id, review.title] == 1
    ]
    for review in some(name, clear):
        values = {"title": review.title, "customer": review.customer.name}
        row = dict(product_id=review.product.id, user_id=review.customer.id, title=review.title)
        edit = changed(SITE, "reviews_productreview", {"status": number}, **row)
        play = doing(open_review(review), choose("Status:", status), save())
        yield {**values, "product": review.product.title}, changes(edit), play


@TEMPLATES(19, 'Approve the review "{title}" that {customer} wrote of the {product}.')
def _approve() -> Rows:
    return _judge("approve", "Approved", 1, is_approved=False)


@TEMPLATES(20, 'Reject the review "{title}" that {customer} wrote of the {product}.')
def _reject() -> Rows:
    return _judge("reject", "Rejected", 2, is_approved=True)


# Tasks that add something.

_PAGES = (
    ("Opening hours", "/opening-hours/", "The showroom is open on Saturdays from 10 to 16."),
    ("Repairs", "/repairs/", "Send in what is broken. We answer with a price in a week."),
    ("Jobs", "/jobs/", "We are looking for a packer in Riverside."),
    ("Gift wrapping", "/gift-wrapping/", "Write the word present into the notes."),
)
_CATEGORIES = (
    ("Teapots", "Kitchen"),
    ("Bird Feeders", "Garden"),
    ("Desk Clocks", "Office"),
    ("Skipping Ropes", "Sport"),
)
_PARTNERS = ("Lakeside Depot", "Southport Stores", "Old Mill Warehouse", "Westfield Hall")
_RANGES = (
    ("Autumn picks", "Warm things for shorter days"),
    ("Under the roof", "Whatever a new flat needs first"),
    ("Writers", "Paper, pens and light"),
    ("On the road", "Small things for long trips"),
)
_VOUCHERS = (
    ("Newsletter readers", "NEWS24", "2024-07-31", "Spring welcome"),
    ("Staff", "STAFF24", "2024-12-31", "Friends of the shop"),
    ("Back again", "AGAIN24", "2024-09-30", "Loyal customers"),
    ("Late summer", "LATE24", "2024-10-15", "Garden days"),
)


@TEMPLATES(21, 'Make a page with the title "{title}" at the URL {url} with the text "{text}"')
def _new_page() -> Rows:
    for title, url, text in _PAGES:
        texts = {"Title": title, "URL": url, "Content": text}
        check = changes(
            added(SITE, "django_flatpage", url=url, title=title, content=text),
            added(SITE, "django_flatpage_sites", flatpage_id=url, site_id=1),
        )
        play = doing(create("Content", "Pages", "page", texts), save())
        yield {"title": title, "url": url, "text": text}, check, play


@TEMPLATES(22, 'Make a new category "{name}" below {parent}.')
def _new_category() -> Rows:
    for name, parent in _CATEGORIES:
        play = doing(
            create("Catalogue", "Categories", "category", {"Name": name}),
            choose("Relative to", parent),
            save(),
        )
        # `path` has the name of the parent category; see `agentgym_sites/shop/content.py`.
        row = dict(name=name, path=parent, is_public=1, ancestors_are_public=1)
        yield (
            {"name": name, "parent": parent},
            changes(added(SITE, "catalogue_category", **row)),
            play,
        )


@TEMPLATES(23, 'Add a partner with the name "{name}".')
def _new_partner() -> Rows:
    for name in _PARTNERS:
        play = doing(create("Fulfilment", "Partners", "partner", {"Name": name}), save())
        yield {"name": name}, changes(added(SITE, "partner_partner", name=name)), play


@TEMPLATES(24, 'Make a range of products with the name "{name}" and the description "{text}".')
def _new_range() -> Rows:
    for name, text in _RANGES:
        texts = {"Name": name, "Description": text}
        play = doing(create("Catalogue", "Ranges", "range", texts), save())
        check = changes(added(SITE, "offer_range", name=name, description=text))
        yield {"name": name, "text": text}, check, play


@TEMPLATES(
    25,
    'Make a voucher "{name}" with the code {code} that ends on {end}. It gives what the voucher '
    '"{offer}" gives.',
)
def _new_voucher() -> Rows:
    for name, code, end, offer in _VOUCHERS:
        texts = {"Name": name, "Code": code, "End datetime": f"{end} 00:00:00"}
        given = f"Offer for voucher '{offer}'"
        play = doing(create("Offers", "Vouchers", "voucher", texts), click("option", given), save())
        row = dict(voucher_id=code, conditionaloffer_id=given)
        check = changes(
            added(SITE, "voucher_voucher", name=name, code=code, end_datetime=end),
            added(SITE, "voucher_voucher_offers", **row),
        )
        yield {"name": name, "code": code, "end": end, "offer": offer}, check, play
