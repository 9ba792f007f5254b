"""Writes the tables of the shop with oscar's models."""

import datetime
import pathlib
from collections import defaultdict
from decimal import Decimal

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.contrib.flatpages.models import FlatPage
from django.contrib.sites.models import Site
from oscar.core.loading import get_model

from agentgym_sites import clock
from agentgym_sites.django_template import save_login
from agentgym_sites.shop import images, sessions
from agentgym_sites.shop.tables import (
    ADMIN,
    BASKET_ID,
    CUSTOMER_PASSWORD,
    FIRST_DAY,
    PAGES,
    PARTNERS,
    VOUCHERS,
    Address,
    Customer,
    Order,
    Product,
    Tables,
    tables,
)
from agentgym_sites.shop.words import SHELVES, WORDS

_BACKEND = "oscar.apps.customer.auth_backends.EmailBackend"
_SALT = "northgate"  # a random salt would make each build of the template different
_LOW_STOCK = 5


def seed(folder: pathlib.Path) -> None:
    """Writes all tables into the empty database."""
    shop = tables()
    with clock.at(FIRST_DAY):
        Site.objects.update(domain="127.0.0.1", name="Northgate Market")
        country = get_model("address", "Country").objects.create(
            iso_3166_1_a2="US",
            iso_3166_1_a3="USA",
            iso_3166_1_numeric="840",
            printable_name="United States",
            name="United States of America",
            is_shipping_country=True,
        )
        _write_products(shop)
        users = _write_users(shop, country)
    _write_orders(shop, users, country)
    _write_reviews(shop, users)
    _write_offers()
    _write_pages()
    _write_customers_things(shop, users[1])
    admin = get_user_model().objects.get(username=ADMIN[0])
    save_login(folder, "shopping", sessions.SHOP_COOKIE, users[1], _BACKEND)
    save_login(folder, "shopping_admin", sessions.DASHBOARD_COOKIE, admin, _BACKEND)


def _dollars(cents: int) -> Decimal:
    return Decimal(cents) / 100


def _write_products(shop: Tables) -> None:
    model = get_model("catalogue", "Product")
    classes = {}
    categories = {}
    category_model = get_model("catalogue", "Category")
    for department, text in WORDS["departments"].items():
        root = category_model.add_root(name=department, description=text)
        classes[department] = _product_class(department)
        for shelf in SHELVES:
            if shelf.department == department:
                root.refresh_from_db()
                categories[shelf.name] = root.add_child(name=shelf.name)
    partners = {
        name: get_model("partner", "Partner").objects.create(name=name, code=f"P{number}")
        for number, name in enumerate(PARTNERS, 1)
    }
    attributes = {
        department: {attribute.name: attribute for attribute in row.attributes.all()}
        for department, row in classes.items()
    }
    for product in shop.products:
        scores = [review.score for review in shop.reviews_of(product)]
        row = model.objects.create(
            id=product.id,
            upc=product.upc,
            title=product.title,
            slug=product.slug,
            description=f"<p>{product.description}</p>",
            product_class=classes[product.shelf.department],
            rating=sum(scores) / len(scores) if scores else None,
        )
        _write_attributes(row, product, attributes[product.shelf.department])
        row.productcategory_set.create(category=categories[product.shelf.name])
        row.images.create(original=images.image_name(product), display_order=0)
        stock = row.stockrecords.create(
            partner=partners[product.partner],
            partner_sku=product.upc,
            price_currency="USD",
            price=_dollars(product.cents),
            num_in_stock=product.stock,
            low_stock_threshold=_LOW_STOCK,
        )
        if 0 < product.stock < _LOW_STOCK:
            stock.alerts.create(threshold=_LOW_STOCK)


def _product_class(department: str):
    row = get_model("catalogue", "ProductClass").objects.create(
        name=department, requires_shipping=True, track_stock=True
    )
    names = {"Brand", "Material", "Made in", "Guarantee"}
    for shelf in SHELVES:
        if shelf.department == department:
            names |= {shelf.variant_name, shelf.size[0]}
    for name in sorted(names):
        code = name.lower().replace(" ", "_")
        row.attributes.create(name=name, code=code, type="text", required=False)
    return row


def _write_attributes(row, product: Product, attributes: dict[str, object]) -> None:
    model = get_model("catalogue", "ProductAttributeValue")
    model.objects.bulk_create(
        model(product=row, attribute=attributes[name], value_text=value)
        for name, value in product.attributes
    )


def _write_users(shop: Tables, country) -> dict[int, object]:
    """Writes the users; returns a dictionary from the id of a customer to the user."""
    model = get_user_model()
    password = make_password(CUSTOMER_PASSWORD, salt=_SALT)
    users = {}
    for customer in shop.customers:
        joined = FIRST_DAY + datetime.timedelta(hours=7 * customer.id)
        with clock.at(joined):
            user = model.objects.create(
                username=f"customer{customer.id}",
                email=customer.email,
                first_name=customer.first_name,
                last_name=customer.last_name,
                password=password,
            )
            _write_address(user, customer, customer.address, country, is_default=True)
        users[customer.id] = user
    for address in shop.more_addresses:
        _write_address(users[1], shop.customer, address, country, is_default=False)
    model.objects.create(
        username=ADMIN[0],
        email=ADMIN[1],
        first_name="Ada",
        last_name="Northgate",
        password=make_password(ADMIN[2], salt=_SALT),
        is_staff=True,
        is_superuser=True,
    )
    return users


def _address_fields(customer: Customer, address: Address, country) -> dict[str, object]:
    return {
        "first_name": customer.first_name,
        "last_name": customer.last_name,
        "line1": address.line1,
        "line4": address.city,
        "state": address.state,
        "postcode": address.postcode,
        "country": country,
    }


def _write_address(
    user, customer: Customer, address: Address, country, *, is_default: bool
) -> None:
    user.addresses.create(
        **_address_fields(customer, address, country),
        is_default_for_shipping=is_default,
        is_default_for_billing=is_default,
    )


def _write_orders(shop: Tables, users: dict[int, object], country) -> None:
    products = get_model("catalogue", "Product").objects.prefetch_related("stockrecords__partner")
    by_id = {product.id: product for product in products}
    bought: dict[int, int] = defaultdict(int)
    for order in shop.orders:
        with clock.at(order.placed):
            _write_order(order, users[order.customer.id], by_id, country)
        for product, quantity in order.lines:
            bought[product.id] += quantity
    record = get_model("analytics", "ProductRecord")
    record.objects.bulk_create(
        record(
            product_id=number,
            num_purchases=count,
            num_views=9 * count,
            num_basket_additions=2 * count,
        )
        for number, count in sorted(bought.items())
    )
    record = get_model("analytics", "UserRecord")
    record.objects.bulk_create(
        _user_record(record, users[customer.id], shop.orders_of(customer))
        for customer in shop.customers
    )


def _user_record(model, user, orders: list[Order]):
    return model(
        user=user,
        num_orders=len(orders),
        num_order_lines=sum(len(order.lines) for order in orders),
        num_order_items=sum(quantity for order in orders for _, quantity in order.lines),
        total_spent=_dollars(sum(order.cents for order in orders)),
        date_last_order=orders[-1].placed if orders else None,
    )


def _write_order(order: Order, user, products: dict[int, object], country) -> None:
    total = _dollars(order.cents)
    fields = _address_fields(order.customer, order.customer.address, country)
    row = get_model("order", "Order").objects.create(
        number=order.number,
        site_id=1,
        user=user,
        currency="USD",
        total_incl_tax=total,
        total_excl_tax=total,
        shipping_address=get_model("order", "ShippingAddress").objects.create(**fields),
        shipping_method="Free shipping",
        shipping_code="free-shipping",
        status=order.status,
        date_placed=order.placed,
    )
    for product, quantity in order.lines:
        _write_line(row, products[product.id], product, quantity)


def _write_line(row, product_row, product: Product, quantity: int) -> None:
    price = _dollars(product.cents)
    stock = product_row.stockrecords.all()[0]
    line = row.lines.create(
        partner=stock.partner,
        partner_name=stock.partner.name,
        partner_sku=product.upc,
        stockrecord=stock,
        product=product_row,
        title=product.title,
        upc=product.upc,
        quantity=quantity,
        line_price_incl_tax=price * quantity,
        line_price_excl_tax=price * quantity,
        line_price_before_discounts_incl_tax=price * quantity,
        line_price_before_discounts_excl_tax=price * quantity,
        unit_price_incl_tax=price,
        unit_price_excl_tax=price,
        status=row.status,
        num_allocated=quantity,
    )
    line.prices.create(order=row, quantity=quantity, price_incl_tax=price, price_excl_tax=price)


def _write_reviews(shop: Tables, users: dict[int, object]) -> None:
    model = get_model("reviews", "ProductReview")
    rows = [
        model(
            id=number,
            product_id=review.product.id,
            user=users[review.customer.id],
            score=review.score,
            title=review.title,
            body=review.body,
            status=model.APPROVED if review.is_approved else model.FOR_MODERATION,
        )
        for number, review in enumerate(shop.reviews, 1)
    ]
    model.objects.bulk_create(rows)
    for row, review in zip(rows, shop.reviews, strict=True):
        # bulk_create sets the current time, so the time is set again
        row.date_created = review.written
    model.objects.bulk_update(rows, ["date_created"])


def _write_offers() -> None:
    ranges = get_model("offer", "Range")
    everything = ranges.objects.create(
        name="All products", slug="all-products", includes_all_products=True, is_public=True
    )
    garden = ranges.objects.create(name="Garden", slug="garden", is_public=True)
    category = get_model("catalogue", "Category").objects.get(name="Garden")
    garden.included_categories.add(category)
    for voucher in VOUCHERS:
        begin, end = (_midnight(day) for day in (voucher.first_day, voucher.last_day))
        row = get_model("voucher", "Voucher").objects.create(
            name=voucher.name,
            code=voucher.code,
            usage="Multi-use",
            start_datetime=begin,
            end_datetime=end,
        )
        offer = _offer(
            everything, f"Offer for voucher '{voucher.name}'", voucher.percent, "Voucher"
        )
        row.offers.add(offer)
    _offer(
        garden, "Ready for spring: 20% off the garden when you buy six things", 20, "Site", count=6
    )


def _midnight(day: datetime.date) -> datetime.datetime:
    return datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC)


def _offer(products, name: str, percent: int, kind: str, count: int = 1):
    condition = get_model("offer", "Condition").objects.create(
        range=products, type="Count", value=count
    )
    benefit = get_model("offer", "Benefit").objects.create(
        range=products, type="Percentage", value=percent
    )
    return get_model("offer", "ConditionalOffer").objects.create(
        name=name, offer_type=kind, condition=condition, benefit=benefit, exclusive=True
    )


def _write_pages() -> None:
    for page in PAGES:
        row = FlatPage.objects.create(
            url=page.path, title=page.title, content=f"<p>{page.text}</p>"
        )
        row.sites.add(1)


def _write_customers_things(shop: Tables, user) -> None:
    basket = get_model("basket", "Basket").objects.create(id=BASKET_ID, owner=user)
    products = get_model("catalogue", "Product").objects
    for product, quantity in shop.basket:
        row = products.get(id=product.id)
        stock = row.stockrecords.get()
        basket.lines.create(
            line_reference=f"{product.id}_{stock.id}",
            product=row,
            stockrecord=stock,
            quantity=quantity,
            price_currency="USD",
            price_excl_tax=stock.price,
            price_incl_tax=stock.price,
        )
    for wishlist in shop.wishlists:
        row = user.wishlists.create(name=wishlist.name)
        # create() chooses a random key, so the key is set again
        user.wishlists.filter(pk=row.pk).update(key=wishlist.key)
        for product in wishlist.products:
            row.lines.create(product_id=product.id, title=product.title)
