"""Words for the shop's catalogue, customers and reviews. All of them are invented."""

import dataclasses
from collections.abc import Sequence

from agentgym_envs import data_files


@dataclasses.dataclass(frozen=True, eq=False)  # equal only to itself, and hashable
class Shelf:
    """A category with products.

    Attributes:
      department: Name of the parent category, which is also the product type.
      noun: Noun for one product.
      variants: Variants of a product line; a product's title ends with its variant.
      variant_name: Name of the attribute whose value is the variant.
      size: Name of the size attribute, and its possible values.
      cents: Lowest and highest price in cents.
      use: Sentence about the purpose of the product.
    """

    name: str
    department: str
    noun: str
    variants: Sequence[str]
    variant_name: str
    materials: Sequence[str]
    size: tuple[str, Sequence[str]]
    cents: tuple[int, int]
    use: str


WORDS = data_files.beside(__file__)
SHELVES = tuple(Shelf(**row) for row in WORDS["shelves"])
