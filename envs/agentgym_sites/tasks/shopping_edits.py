"""Edits of the shop's database that tasks require. Names of columns are those in `shop/content.py`."""

from agentgym_envs.webarena.tasks import Edit
from agentgym_sites.shop.tables import Product, tables
from agentgym_sites.tasks.task import added, removed

SITE = "shopping"
CUSTOMER = tables().customer.id
BASKET = str(CUSTOMER)


def in_basket(product: Product, quantity: int) -> Edit:
    """Returns the edit that adds a line to the customer's basket."""
    row = dict(basket_id=BASKET, product_id=product.id, quantity=quantity)
    return added(SITE, "basket_line", **row)


def out_of_basket(product: Product) -> Edit:
    """Returns the edit that removes a product from the basket."""
    return removed(SITE, "basket_line", basket_id=BASKET, product_id=product.id)


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
    row = address_row(address.line1, address.city, address.state, address.postcode)
    taken = [out_of_basket(product) for product, _ in lines]
    ordered = [_order_line(product, count) for product, count in lines]
    return [order, added(SITE, "order_shippingaddress", **row), *taken, *ordered]


def address_row(street: str, city: str, state: str, postcode: str) -> dict[str, object]:
    """Returns the row of an address with the name of the customer."""
    customer = tables().customer
    return dict(
        first_name=customer.first_name,
        last_name=customer.last_name,
        line1=street,
        line4=city,
        state=state,
        postcode=postcode,
        country_id="US",
    )


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
