"""Changes of tasks in the database of the shop; columns and tables as in `sites/shop/content.py`."""

from agentgym_envs.webarena.embedded.task import added, changed, removed
from agentgym_envs.webarena.sites.shop.tables import Customer, Order, Product, Review, tables
from agentgym_envs.webarena.tasks import Edit

SITE = "shopping"
CUSTOMER = tables().customer.id
ADMINISTRATOR = len(tables().customers) + 1
_BASKET = str(CUSTOMER)


def in_basket(product: Product, quantity: int) -> Edit:
    """A new line of the customer's basket."""
    row = dict(basket_id=_BASKET, product_id=product.id, quantity=quantity)
    return added(SITE, "basket_line", **row)


def out_of_basket(product: Product) -> Edit:
    """A line of the basket that is gone."""
    return removed(SITE, "basket_line", basket_id=_BASKET, product_id=product.id)


def basket_quantity(product: Product, quantity: int) -> Edit:
    """Another quantity of a line of the basket."""
    row = dict(basket_id=_BASKET, product_id=product.id)
    return changed(SITE, "basket_line", {"quantity": quantity}, **row)


def on_basket(code: str) -> Edit:
    """A voucher that is used for the basket."""
    return added(SITE, "basket_basket_vouchers", basket_id=_BASKET, voucher_id=code)


def bought(lines: tuple[tuple[Product, int], ...], street: str) -> list[Edit]:
    """The basket becomes an order to one of the customer's addresses."""
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
    """A product on a wish list."""
    row = dict(wishlist_id=wishlist, product_id=product.id, title=product.title, quantity=1)
    return added(SITE, "wishlists_line", **row)


def new_wishlist(name: str) -> Edit:
    """An empty wish list."""
    row = dict(owner_id=CUSTOMER, name=name, visibility="Private")
    return added(SITE, "wishlists_wishlist", **row)


def review(product: Product, score: int, title: str, body: str) -> Edit:
    """A review by the customer, approved at once."""
    row = dict(product_id=product.id, score=score, title=title, body=body)
    return added(SITE, "reviews_productreview", user_id=CUSTOMER, status=1, **row)


def address(street: str, city: str, state: str, postcode: str) -> Edit:
    """An address in the address book, with the name of the customer."""
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
    """Another first line of an address."""
    return changed(SITE, "address_useraddress", {"line1": new}, user_id=CUSTOMER, line1=street)


def renamed(last_name: str) -> Edit:
    """Another last name of the customer."""
    row = dict(email=tables().customer.email)
    return changed(SITE, "auth_user", {"last_name": last_name}, **row)


def order_status(order: Order, status: str) -> Edit:
    """Another status of an order."""
    return changed(SITE, "order_order", {"status": status}, number=order.number)


def order_note(order: Order, message: str) -> Edit:
    """A note of the administrator's."""
    row = dict(order_id=order.number, user_id=ADMINISTRATOR, message=message)
    return added(SITE, "order_ordernote", **row)


def product_field(product: Product, field: str, value: object) -> Edit:
    """Another value in the row of a product."""
    return changed(SITE, "catalogue_product", {field: value}, upc=product.upc)


def stock_field(product: Product, field: str, value: object) -> Edit:
    """Another value in the row of a product's stock."""
    return changed(SITE, "partner_stockrecord", {field: value}, partner_sku=product.upc)


def review_status(review: Review, status: int) -> Edit:
    """A review that is approved (1) or rejected (2)."""
    row = dict(product_id=review.product.id, user_id=review.customer.id, title=review.title)
    return changed(SITE, "reviews_productreview", {"status": status}, **row)
