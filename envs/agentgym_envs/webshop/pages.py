"""Pages of the shop as text, with what can be clicked on them."""

import dataclasses
from collections.abc import Sequence

from agentgym_envs.webshop.catalogue import Product

SEPARATOR = " [SEP] "
PER_PAGE, MOST_RESULTS = 10, 50
SEARCH, BACK, NEXT, PREVIOUS, BUY = "Search", "Back to Search", "Next >", "< Prev", "Buy Now"
DESCRIPTION, FEATURES, REVIEWS = "Description", "Features", "Reviews"
_THANKS = "Thank you for shopping with us!"


@dataclasses.dataclass(frozen=True)
class Page:
    """A page as the agent sees it.

    Attributes:
      kind: `index`, `results`, `item`, `item_sub_page` or `done`.
      parts: Texts of the page in their order.
      clickables: Texts that can be clicked, in lower case.
    """

    kind: str
    parts: tuple[str, ...]
    clickables: tuple[str, ...]

    @property
    def text(self) -> str:
        """The page as one text."""
        return SEPARATOR.join(self.parts)


def index(instruction: str) -> Page:
    """Returns the page with the search bar."""
    return Page("index", ("WebShop", "Instruction:", instruction, SEARCH), _lower(SEARCH))


def results(instruction: str, found: Sequence[Product], number: int) -> Page:
    """Returns page `number` of the results; the first page has the number 1."""
    shown = found[(number - 1) * PER_PAGE : number * PER_PAGE]
    buttons = [BACK]
    buttons += [PREVIOUS] if number > 1 else []
    buttons += [NEXT] if number * PER_PAGE < len(found) else []
    title = f"Page {number} (Total results: {len(found)})"
    return Page(
        "results",
        (
            *_head(instruction),
            BACK,
            title,
            *buttons[1:],
            *(text for p in shown for text in (p.asin, p.title, p.price_tag)),
        ),
        _lower(*buttons, *(product.asin for product in shown)),
    )


def item(instruction: str, product: Product) -> Page:
    """Returns the page of a product. As in WebShop, it does not show which options are chosen."""
    options = [text for name, values in product.options.items() for text in (name, *values)]
    buttons = (DESCRIPTION, FEATURES, REVIEWS, BUY)
    facts = (product.title, f"Price: {product.price_tag}", "Rating: N.A.")
    values = [value for values in product.options.values() for value in values]
    return Page(
        "item",
        (*_head(instruction), BACK, PREVIOUS, *options, *facts, *buttons),
        _lower(BACK, PREVIOUS, *buttons, *values),
    )


def item_sub_page(instruction: str, product: Product, name: str) -> Page:
    """Returns the page that a product's button `Description`, `Features` or `Reviews` opens."""
    texts = {DESCRIPTION: (product.description,), FEATURES: product.features, REVIEWS: ()}[name]
    return Page(
        "item_sub_page",
        (*_head(instruction), BACK, PREVIOUS, *texts),
        _lower(BACK, PREVIOUS),
    )


def done(score: float) -> Page:
    """Returns the page after the purchase."""
    return Page("done", (_THANKS, "Your score (min 0.0, max 1.0)", str(score)), ())


def _head(instruction: str) -> tuple[str, str]:
    return "Instruction:", instruction


def _lower(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.lower() for text in texts))
