"""WebShop's own data files: products, attributes and synthetic instructions."""

import itertools
import json
import pathlib
import random
import re
from typing import Any

from agentgym_envs.base.environment import SetupError
from agentgym_envs.webshop.catalogue import Product
from agentgym_envs.webshop.goals import Goal

_PRODUCTS = ("items_shuffle_1000.json", "items_shuffle.json")
_ATTRIBUTES = ("items_ins_v2_1000.json", "items_ins_v2.json")
_UNPRICED = 100.0  # dollars
_NO_LIMIT = 1_000_000.0
_LIMITS = [10.0 * i for i in range(1, 100)]
_SEED = 233  # of the price limits and of the order of the goals
MOST_PRODUCTS = 1000  # as many as AgentGym's server loads


def load(folder: pathlib.Path) -> tuple[list[Product], list[Goal]]:
    """Returns the products and the goals of a folder, with the ids of AgentGym's server.

    Raises:
      SetupError: A file is missing or has an unexpected form.
    """
    rows, facts = _read(folder, _PRODUCTS), _read(folder, _ATTRIBUTES)
    products: dict[str, Product] = {}
    goals: list[Goal] = []
    rng = random.Random(_SEED)
    try:
        for row in rows[:MOST_PRODUCTS]:
            asin = row["asin"]
            if asin == "nan" or len(asin) > 10 or asin in products:
                continue
            known = facts[asin] if asin in facts else {}
            products[asin] = _product(row, known)
            if known.get("instruction"):
                goals += _goals(products[asin], known, rng)
    except (KeyError, TypeError, ValueError) as error:
        raise SetupError(f"webshop: unexpected data in {folder}: {error!r}") from error
    if not goals:
        raise SetupError(f"webshop: no product in {folder} has an instruction")
    random.Random(_SEED).shuffle(goals)
    return list(products.values()), goals


def _read(folder: pathlib.Path, names: tuple[str, ...]) -> Any:
    for name in names:
        if (folder / name).is_file():
            try:
                return json.loads((folder / name).read_text(encoding="utf-8"))
            except ValueError as error:
                raise SetupError(f"webshop: {folder / name} is no JSON: {error}") from error
    raise SetupError(f"webshop: {folder} has neither {' nor '.join(names)}, WebShop's data files")


def _product(row: dict[str, Any], known: dict[str, Any]) -> Product:
    prices = [float(re.sub(r"[^\d.]", "", p)) for p in (row["pricing"] or "").split("$")[1:]][:2]
    prices = prices or [_UNPRICED]
    features = row["small_description"] or ""
    options = {
        name.lower(): tuple(v["value"].strip().replace("/", " | ").lower() for v in values)
        for name, values in (row["customization_options"] or {}).items()
        if values
    }
    return Product(
        asin=row["asin"],
        title=row["name"],
        query=row["query"].lower().strip(),
        categories=tuple(part.strip() for part in row["product_category"].split("›")),
        price=sum(prices) / len(prices),  # WebShop draws a price between the two
        price_tag=" to ".join(f"${price}" for price in prices),
        options=options,
        attributes=tuple(known["attributes"] if "attributes" in known else ()),
        features=tuple(features if isinstance(features, list) else [features]),
        description=row["full_description"] or "",
    )


def _goals(product: Product, known: dict[str, Any], rng: random.Random) -> list[Goal]:
    """Returns a goal for each combination of the product's options."""
    limits = [limit for limit in _LIMITS if limit > product.price][:4]
    highest, price_text = _NO_LIMIT, ""
    if len(limits) >= 2:
        highest = max(rng.sample(limits, 2))
        price_text = f", and price lower than {highest:.2f} dollars"
    names = sorted(product.options)
    goals = []
    for values in itertools.product(*(product.options[name] for name in names)):
        options = dict(zip(names, values, strict=True))
        wishes = ", and ".join(f"{name}: {value}" for name, value in options.items())
        text = f"{known['instruction']}{' with ' if wishes else ''}{wishes}{price_text}"
        attributes = tuple(known["instruction_attributes"])
        goals.append(Goal(product, text, attributes, options, highest, True))
    return goals
