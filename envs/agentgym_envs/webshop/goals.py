"""Instructions of the tasks, and the reward for a purchase (arXiv:2207.01206, section 3.1)."""

import dataclasses
import difflib
import random
import re
from collections.abc import Mapping, Sequence

from agentgym_envs.webshop.catalogue import Product

GOALS_PER_PRODUCT = 6
_STEP = 10  # dollars between two price limits
_OPENINGS = ("Find me", "I need", "Look for", "I want to buy")
_SAME = 0.85  # least similarity of two texts that mean the same, as in WebShop
_FEW_WORDS, _SOME_WORDS = 0.1, 0.2  # shares of common words in the rule for the type


@dataclasses.dataclass(frozen=True)
class Goal:
    """A task.

    Attributes:
      attributes: Properties that the product must have.
      options: Option values that must be chosen.
      highest_price: Highest allowed price in dollars.
      is_fuzzy: True if similar texts count as equal, as in WebShop.
    """

    product: Product
    instruction: str
    attributes: tuple[str, ...]
    options: Mapping[str, str]
    highest_price: float
    is_fuzzy: bool


def embedded_goals(products: Sequence[Product]) -> list[Goal]:
    """Returns `GOALS_PER_PRODUCT` goals for each product, the same on every machine."""
    return [
        _goal(product, random.Random(f"webshop/{product.asin}/{number}"))
        for product in products
        for number in range(GOALS_PER_PRODUCT)
    ]


def _goal(product: Product, rng: random.Random) -> Goal:
    attributes = rng.sample(product.attributes, rng.choice((1, 2, 2, 3)))
    names = sorted(rng.sample(list(product.options), rng.choice((0, 1, 1, 2, 2))))
    options = {name: rng.choice(product.options[name]) for name in names}
    highest = (product.price // _STEP + rng.choice((1, 2, 3))) * _STEP
    chosen = [f"{name}: {value}" for name, value in options.items()]
    wishes = ", and ".join([*chosen, f"price lower than {highest:.2f} dollars"])
    instruction = f"{rng.choice(_OPENINGS)} {', '.join(attributes)} {product.query}"
    joint = " with " if chosen else ", and "
    return Goal(
        product, f"{instruction}{joint}{wishes}", tuple(attributes), options, highest, False
    )


def reward(goal: Goal, product: Product, options: Mapping[str, str]) -> float:
    """Returns the reward of a purchase, 0 to 1.

    It is the share of the wished attributes, options and price limit that are met, times a factor
    for the type of the product.
    """
    text = " ".join((product.title, product.description, *product.features)).lower()
    attributes = sum(
        wish in text or any(_same(wish, own, goal.is_fuzzy) for own in product.attributes)
        for wish in goal.attributes
    )
    chosen = sum(
        any(_same(wish, value, goal.is_fuzzy) for value in options.values())
        for wish in goal.options.values()
    )
    met = attributes + chosen + (product.price <= goal.highest_price)
    wishes = len(goal.attributes) + len(goal.options) + 1
    return _type_factor(goal, product) * met / wishes


def _type_factor(goal: Goal, bought: Product) -> float:
    """Returns 0, 0.1, 0.5 or 1 for the similarity of two kinds of products.

    WebShop compares the nouns of the titles; here all words are compared, which needs no tagger. In
    WebShop's long titles more than a few common words mean the same kind. Embedded titles are short,
    and a common word can be the brand.
    """
    wanted = goal.product
    words = _words(wanted.title)
    share = len(words & _words(bought.title)) / len(words) if words else _SOME_WORDS
    if share < _FEW_WORDS:
        return 0.1 if share else 0.0
    same_categories = len(set(wanted.categories) & set(bought.categories)) >= 2
    same_titles = goal.is_fuzzy and share > _SOME_WORDS
    return 1.0 if wanted.query == bought.query or same_categories or same_titles else 0.5


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]{3,}", text.lower()))


def _same(first: str, second: str, is_fuzzy: bool) -> bool:
    """Returns True if two texts are equal, or similar as sets of words."""
    if first == second or not is_fuzzy:
        return first == second
    one, two = set(first.split()), set(second.split())
    common = " ".join(sorted(one & two))
    if common and (one <= two or two <= one):
        return True
    texts = [common, *(f"{common} {' '.join(sorted(s - t))}" for s, t in ((one, two), (two, one)))]
    return any(
        difflib.SequenceMatcher(None, a.strip(), b.strip(), autojunk=False).ratio() > _SAME
        for a, b in ((texts[0], texts[1]), (texts[0], texts[2]), (texts[1], texts[2]))
    )
