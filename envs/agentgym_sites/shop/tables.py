"""Seed data of the shop as plain tables, from which tasks also take their reference answers.

The tables are the same on every machine. They depend neither on Django nor on the current day.
"""

import dataclasses
import datetime
import functools
import re

from agentgym_sites.chance import Dice
from agentgym_sites.shop.words import SHELVES, WORDS, Shelf

PRODUCTS_PER_SHELF = 28
CUSTOMERS = 72
ORDERS = 360
FIRST_DAY = datetime.datetime(2023, 1, 4, 9, 0, tzinfo=datetime.UTC)
LAST_DAY = datetime.datetime(2024, 2, 28, 18, 0, tzinfo=datetime.UTC)
FIRST_ORDER_NUMBER = 100001
# Oscar gives a new order the number 100000 + basket id. Basket ids start here, so that no new order
# gets the number of an existing order.
BASKET_ID = 1001
PARTNERS = ("Northgate Warehouse", "Riverside Depot", "Hillcrest Storehouse")
CUSTOMER_PASSWORD = "Maple.Street.7"
ADMIN = ("admin", "admin@northgate.example.com", "Juniper.Gate.9")


@dataclasses.dataclass(frozen=True)
class Product:
    """A product with one stock record."""

    id: int
    upc: str
    title: str
    shelf: Shelf
    brand: str
    line: str
    attributes: tuple[tuple[str, str], ...]  # pairs of name and value
    description: str
    cents: int
    stock: int
    partner: str

    @property
    def price(self) -> str:
        """Price in dollars as shown on pages, without the dollar sign."""
        return f"{self.cents // 100:,}.{self.cents % 100:02d}"

    @property
    def slug(self) -> str:
        """Title in the form that is part of the product's address."""
        return slug(self.title)

    @property
    def path(self) -> str:
        """Path of the product's page."""
        return f"/catalogue/{self.slug}_{self.id}/"


@dataclasses.dataclass(frozen=True)
class Address:
    """Postal address of a customer."""

    line1: str
    city: str
    state: str
    postcode: str


@dataclasses.dataclass(frozen=True)
class Customer:
    """A person with an account."""

    id: int
    first_name: str
    last_name: str
    email: str
    address: Address

    @property
    def name(self) -> str:
        """First and last name."""
        return f"{self.first_name} {self.last_name}"


@dataclasses.dataclass(frozen=True)
class Order:
    """An order; its lines are pairs of a product and a quantity."""

    number: str
    customer: Customer
    placed: datetime.datetime
    status: str
    lines: tuple[tuple[Product, int], ...]

    @property
    def cents(self) -> int:
        """Sum of the lines in cents; delivery is free."""
        return sum(product.cents * quantity for product, quantity in self.lines)

    @property
    def total(self) -> str:
        """Total in dollars as shown on pages, without the dollar sign."""
        return f"{self.cents // 100:,}.{self.cents % 100:02d}"


@dataclasses.dataclass(frozen=True)
class Review:
    """A customer's review of a product; a review that is not approved waits for the administrator."""

    product: Product
    customer: Customer
    score: int
    title: str
    body: str
    written: datetime.datetime
    is_approved: bool


@dataclasses.dataclass(frozen=True)
class Voucher:
    """A code that reduces the price of the basket."""

    name: str
    code: str
    percent: int
    first_day: datetime.date
    last_day: datetime.date


@dataclasses.dataclass(frozen=True)
class Wishlist:
    """A wish list of the logged-in customer; the key is the last part of its address."""

    name: str
    key: str
    products: tuple[Product, ...]


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of text that the administrator can change."""

    path: str
    title: str
    text: str


@dataclasses.dataclass(frozen=True)
class Tables:
    """All tables of the shop; customers[0] is logged in."""

    products: tuple[Product, ...]
    customers: tuple[Customer, ...]
    orders: tuple[Order, ...]
    reviews: tuple[Review, ...]
    basket: tuple[tuple[Product, int], ...]
    wishlists: tuple[Wishlist, ...]
    more_addresses: tuple[Address, ...]  # further addresses of customers[0]

    @property
    def customer(self) -> Customer:
        """Customer who is logged in on the storefront."""
        return self.customers[0]

    def shelf_products(self, name: str) -> list[Product]:
        """Returns the products of a category."""
        return [product for product in self.products if product.shelf.name == name]

    def orders_of(self, customer: Customer) -> list[Order]:
        """Returns the orders of a customer, oldest first."""
        return [order for order in self.orders if order.customer is customer]

    def reviews_of(self, product: Product) -> list[Review]:
        """Returns the approved reviews of a product."""
        return [r for r in self.reviews if r.product is product and r.is_approved]


VOUCHERS = tuple(Voucher(**row) for row in WORDS["vouchers"])
PAGES = tuple(Page(**row) for row in WORDS["pages"])


@functools.cache
def tables() -> Tables:
    """Returns the tables, which are created once per process."""
    products = _products()
    customers = _customers()
    orders = _orders(products, customers)
    dice = Dice("customer's things")
    in_stock = [product for product in products if product.stock > 20]
    chosen = dice.sample(in_stock, 8)
    return Tables(
        products=products,
        customers=customers,
        orders=orders,
        reviews=_reviews(products, customers),
        basket=((chosen[0], 1), (chosen[1], 2)),
        wishlists=(
            Wishlist("Birthday ideas", "bday24", tuple(chosen[2:5])),
            Wishlist("New flat", "flat24", tuple(chosen[5:8])),
        ),
        more_addresses=(
            Address("48 Ferry Road", "Bellingham", "WA", "98225"),
            Address("5 Ivy Lane", "Savannah", "GA", "31401"),
        ),
    )


def category_path(shelf: Shelf) -> str:
    """Returns the path of a category's page; categories are numbered in the order of the seed."""
    number = 0
    for department in WORDS["departments"]:
        number += 1
        for other in SHELVES:
            if other.department == department:
                number += 1
                if other is shelf:
                    return f"/catalogue/category/{slug(department)}/{slug(shelf.name)}_{number}/"
    raise ValueError(f"{shelf.name} has no department")


def slug(text: str) -> str:
    """Returns a text as lower-case letters and digits joined by dashes, as Django does."""
    kept = re.sub(r"[^\w\s-]", "", text.lower())
    return re.sub(r"[-\s]+", "-", kept).strip("-_")


def _products() -> tuple[Product, ...]:
    products: list[Product] = []
    for shelf in SHELVES:
        dice = Dice(f"shelf {shelf.name}")
        lines = dice.sample(WORDS["lines"], PRODUCTS_PER_SHELF // 2)
        brands = dice.sample(WORDS["brands"], 5)
        for line in lines:
            brand = dice.pick(brands)
            for variant in sorted(dice.sample(shelf.variants, 2), key=shelf.variants.index):
                products.append(_product(len(products) + 1, shelf, brand, line, variant, dice))
    return tuple(products)


def _product(number: int, shelf: Shelf, brand: str, line: str, variant: str, dice: Dice) -> Product:
    material = dice.pick(shelf.materials)
    size_name, sizes = shelf.size
    size = dice.pick(sizes)
    country = dice.pick(WORDS["countries"])
    guarantee = f"{dice.between(1, 10)} years"
    opening = dice.pick(WORDS["openings"]).format(
        noun=shelf.noun.lower(), line=line, brand=brand, material=material
    )
    low, high = shelf.cents
    return Product(
        id=number,
        upc=f"NG-{number:04d}",
        title=f"{brand} {line} {shelf.noun}, {variant}",
        shelf=shelf,
        brand=brand,
        line=line,
        attributes=(
            ("Brand", brand),
            (shelf.variant_name, variant),
            ("Material", material),
            (size_name, size),
            ("Made in", country),
            ("Guarantee", guarantee if guarantee != "1 years" else "1 year"),
        ),
        description=f"{opening} {size_name}: {size}. {shelf.use} Made in {country}.",
        # The prices in a category all differ, so that exactly one product is the cheapest.
        cents=_distinct_cents(number, low, high, dice),
        stock=dice.pick((0, 3, 7, 12, 25, 40, 64, 90, 120, 250)),
        partner=dice.pick(PARTNERS),
    )


def _distinct_cents(number: int, low: int, high: int, dice: Dice) -> int:
    """Returns a price whose last two digits identify the product within its category."""
    return dice.between(low, high) // 100 * 100 + (number * 37) % 100


def _customers() -> tuple[Customer, ...]:
    dice = Dice("customers")
    customers = []
    for index in range(CUSTOMERS):
        first = WORDS["first_names"][index % len(WORDS["first_names"])]
        last = WORDS["last_names"][index % len(WORDS["last_names"])]
        city, state, postcode = dice.pick(WORDS["cities"])
        address = Address(
            f"{dice.between(1, 240)} {dice.pick(WORDS['streets'])}", city, state, postcode
        )
        email = f"{first}.{last}@example.com".lower()
        customers.append(Customer(index + 1, first, last, email, address))
    return tuple(customers)


def _orders(products: tuple[Product, ...], customers: tuple[Customer, ...]) -> tuple[Order, ...]:
    dice = Dice("orders")
    step = (LAST_DAY - FIRST_DAY) / (ORDERS - 1)
    orders = []
    for index in range(ORDERS):
        # The logged-in customer has every twelfth order, so that she has a history of orders.
        customer = customers[0] if index % 12 == 5 else dice.pick(customers[1:])
        moment = FIRST_DAY + step * index
        placed = moment.replace(minute=dice.below(60), second=0, microsecond=0)
        chosen = dice.sample(products, dice.pick((1, 1, 2, 2, 3, 4)))
        lines = tuple((product, dice.pick((1, 1, 1, 2, 3))) for product in chosen)
        number = str(FIRST_ORDER_NUMBER + index)
        orders.append(Order(number, customer, placed, _status(index, dice), lines))
    return tuple(orders)


def _status(index: int, dice: Dice) -> str:
    """Returns the status of an order: all old orders are complete or cancelled, most of the latest
    forty are not.
    """
    if index < ORDERS - 40:
        return dice.pick(("Complete",) * 8 + ("Cancelled",))
    return dice.pick(("Pending", "Pending", "Being processed", "Being processed", "Cancelled"))


def _reviews(products: tuple[Product, ...], customers: tuple[Customer, ...]) -> tuple[Review, ...]:
    dice = Dice("reviews")
    reviews = []
    for product in products:
        count = dice.pick((0, 1, 1, 1, 2, 2, 3))
        for customer in dice.sample(customers[1:], count):
            reviews.append(_review(product, customer, dice, is_approved=True))
    for product in dice.sample(products, 16):
        taken = {review.customer.id for review in reviews if review.product is product}
        others = [customer for customer in customers[1:] if customer.id not in taken]
        reviews.append(_review(product, dice.pick(others), dice, is_approved=False))
    return tuple(reviews)


def _review(product: Product, customer: Customer, dice: Dice, *, is_approved: bool) -> Review:
    score = dice.pick((5, 5, 5, 4, 4, 4, 3, 3, 2, 1))
    sentences = dice.sample(WORDS["review_sentences"][str(score)], 2)
    return Review(
        product=product,
        customer=customer,
        score=score,
        title=dice.pick(WORDS["review_titles"][str(score)]),
        body=" ".join(sentences).format(noun=product.shelf.noun.lower()),
        written=FIRST_DAY + datetime.timedelta(days=dice.below(410), minutes=dice.below(600)),
        is_approved=is_approved,
    )
