"""Edits of the shop's database that tasks require. Names of columns are those in `shop/content.py`."""

from agentgym_envs.webarena.tasks import Edit
from agentgym_sites.shop.tables import Customer, Order, Product, Review, tables
from agentgym_sites.tasks.task import added, changed, removed

SITE = "shopping"
CUSTOMER = tables().customer.id
ADMINISTRATOR = len(tables().customers) + 1
_BASKET = str(CUSTOMER)


def in_basket(product: Product, quantity: int) -> Edit:
    """Returns the edit that adds a line to the customer's basket."""
    row = dict(basket_id=_BASKET, product_id=product.id, quantity=quantity)
    return added(SITE, "basket_line", **row)


def out_of_basket(product: Product) -> Edit:
    """Returns the edit that removes a product from the basket."""
    return removed(SITE, "basket_line", basket_id=_BASKET, product_id=product.id)


def basket_quantity(product: Product, quantity: int) -> Edit:
    """Returns the edit that changes the quantity of a product in the basket."""
    row = dict(basket_id=_BASKET, product_id=product.id)
    return changed(SITE, "basket_line", {"quantity": quantity}, **row)


def on_basket(code: str) -> Edit:
    """Returns the edit that applies a voucher to the basket."""
    return added(SITE, "basket_basket_vouchers", basket_id=_BASKET, voucher_id=code)


def bought(lines: tuple[tuple[Product, int], ...], street: str) -> list[Edit]:
    """Returns the edits that convert the basket to an order sent to one of the customer's
    addresses.
    """
    shop = tables()
    customer = shop.customer
    addresses = (customer.address, *shop.more_addresses)
    address = next(each for each in addresses if each.line1 == street)
    total = sum(product.cents * count for product, count in lines) / 100
    order = added(
        SITE,
        "order_order",
        site_id=1,
        user_id=customer.id,
        currency="USD",
        total_incl_tax=total,
        total_excl_tax=total,
        shipping_method="Free shipping",
        shipping_code="free-shipping",
        status="Pending",
    )
    where = added(
        SITE,
        "order_shippingaddress",
        first_name=customer.first_name,
        last_name=customer.last_name,
        line1=address.line1,
        line4=address.city,
        state=address.state,
        postcode=address.postcode,
        country_id="US",
    )
    taken = [out_of_basket(product) for product, _ in lines]
    return [order, where, *taken, *(_order_line(product, count) for product, count in lines)]


def _order_line(product: Product, quantity: int) -> Edit:
    price = product.cents / 100
    line_price = product.cents * quantity / 100
    return added(
        SITE,
        "order_line",
        product_id=product.id,
        title=product.title,
        quantity=quantity,
        line_price_incl_tax=line_price,
        line_price_excl_tax=line_price,
        line_price_before_discounts_incl_tax=line_price,
        line_price_before_discounts_excl_tax=line_price,
        unit_price_incl_tax=price,
        unit_price_excl_tax=price,
        status="Pending",
        num_allocated=quantity,
    )


def wished(product: Product, wishlist: str) -> Edit:
    """Returns the edit that adds a product to a wish list."""
    row = dict(wishlist_id=wishlist, product_id=product.id, title=product.title, quantity=1)
    return added(SITE, "wishlists_line", **row)


def new_wishlist(name: str) -> Edit:
    """Returns the edit that adds an empty wish list."""
    row = dict(owner_id=CUSTOMER, name=name, visibility="Private")
    return added(SITE, "wishlists_wishlist", **row)


def review(product: Product, score: int, title: str, body: str) -> Edit:
    """Returns the edit that adds a review by the customer, which is approved automatically."""
    row = dict(product_id=product.id, score=score, title=title, body=body)
    return added(SITE, "reviews_productreview", user_id=CUSTOMER, status=1, **row)


def address(street: str, city: str, state: str, postcode: str) -> Edit:
    """Returns the edit that adds an address, with the name of the customer, to the address book."""
    customer: Customer = tables().customer
    return added(
        SITE,
        "address_useraddress",
        user_id=CUSTOMER,
        first_name=customer.first_name,
        last_name=customer.last_name,
        line1=street,
        line4=city,
        state=state,
        postcode=postcode,
        country_id="US",
    )


def moved(street: str, new: str) -> Edit:
    """Returns the edit that changes the first line of an address."""
    return changed(SITE, "address_useraddress", {"line1": new}, user_id=CUSTOMER, line1=street)


def renamed(last_name: str) -> Edit:
    """Returns the edit that changes the last name of the customer."""
    row = dict(email=tables().customer.email)
    return changed(SITE, "auth_user", {"last_name": last_name}, **row)


def order_status(order: Order, status: str) -> Edit:
    """Returns the edit that changes the status of an order."""
    return changed(SITE, "order_order", {"status": status}, number=order.number)


def order_note(order: Order, message: str) -> Edit:
    """Returns the edit that adds a note of the administrator to an order."""
    row = dict(order_id=order.number, user_id=ADMINISTRATOR, message=message)
    return added(SITE, "order_ordernote", **row)


def product_field(product: Product, field: str, value: object) -> Edit:
    """Returns the edit that changes a value in the row of a product."""
    return changed(SITE, "catalogue_product", {field: value}, upc=product.upc)


def stock_field(product: Product, field: str, value: object) -> Edit:
    """Returns the edit that changes a value in the row of a product's stock."""
    return changed(SITE, "partner_stockrecord", {field: value}, partner_sku=product.upc)


def review_status(review: Review, status: int) -> Edit:
    """Returns the edit that approves (1) or rejects (2) a review."""
    row = dict(product_id=review.product.id, user_id=review.customer.id, title=review.title)
    return changed(SITE, "reviews_productreview", {"status": status}, **row)
