"""Products of a catalogue, and those of the embedded shop."""

import dataclasses
import functools
from collections.abc import Mapping

from agentgym_sites.shop.tables import Product as Article
from agentgym_sites.shop.tables import tables


@dataclasses.dataclass(frozen=True)
class Product:
    """A product as WebShop's pages show it.

    Attributes:
      asin: Identifier of the product, in upper case.
      query: Kind of product; products that one query found are of the same kind.
      categories: Names of the categories, from general to special.
      price: Price in dollars that counts for the reward.
      price_tag: Price as shown on pages.
      options: Values of each option.
      attributes: Properties of the product; pages show them only in texts.
    """

    asin: str
    title: str
    query: str
    categories: tuple[str, ...]
    price: float
    price_tag: str
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    features: tuple[str, ...]
    description: str

    @property
    def text(self) -> str:
        """Text in which the search engine looks."""
        options = " ".join(value for values in self.options.values() for value in values)
        return " ".join((self.title, self.query, self.description, *self.features, options))


@functools.cache
def embedded_products() -> tuple[Product, ...]:
    """Returns the products of the embedded shop.

    The shop sells each product line in two variants. Here a line is one product, and its variant and
    size are options.
    """
    lines: dict[tuple[str, str], Article] = {}
    for article in tables().products:
        lines.setdefault((article.shelf.name, article.line), article)
    return tuple(_product(article) for article in lines.values())


def _product(article: Article) -> Product:
    shelf, facts = article.shelf, dict(article.attributes)
    size, sizes = shelf.size
    material, origin = facts["Material"], f"made in {facts['Made in']}"
    price = article.cents / 100
    return Product(
        asin=f"NG{article.id:04d}",
        title=f"{article.brand} {article.line} {shelf.noun}",
        query=shelf.noun.lower(),
        categories=(shelf.department, shelf.name),
        price=price,
        price_tag=f"${price:.2f}",
        options={
            shelf.variant_name.lower(): tuple(value.lower() for value in shelf.variants),
            size.lower(): tuple(value.lower() for value in sizes),
        },
        attributes=(material, origin.lower(), article.brand.lower()),
        features=(
            f"Material: {material}",
            origin.capitalize(),
            f"Brand: {article.brand}",
            shelf.use,
        ),
        # the size of this variant is not that of the whole line
        description=article.description.replace(f" {size}: {facts[size]}.", ""),
    )
