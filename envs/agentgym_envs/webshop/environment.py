"""WebShop's tasks as an environment with text observations and actions."""

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any

from agentgym_envs.base.environment import StepResult, check_task
from agentgym_envs.base.episodic import ReplayedEnvironment
from agentgym_envs.webshop import pages
from agentgym_envs.webshop.catalogue import Product
from agentgym_envs.webshop.goals import Goal, reward
from agentgym_envs.webshop.pages import Page
from agentgym_envs.webshop.search import SearchEngine

_ACTION = re.compile(r"(search|click)\[(.+)\]", re.DOTALL | re.IGNORECASE)


class Shop:
    """A catalogue with its search engine and its tasks, shared by all sessions of a process."""

    def __init__(self, products: Sequence[Product], goals: Sequence[Goal]):
        self.goals = goals
        self._products = products
        self._engine = SearchEngine([product.text for product in products])

    def search(self, query: str) -> list[Product]:
        """Returns the best products for a query."""
        return [self._products[i] for i in self._engine.search(query, pages.MOST_RESULTS)]


@dataclasses.dataclass
class Episode:
    """An episode of one task.

    Attributes:
      found: Results of the last search.
      number: Number of the page of results.
      product: Product whose page is or was open.
      options: Chosen value of each option of this product.
    """

    data_idx: int
    goal: Goal
    actions: list[str]
    page: Page
    found: list[Product] = dataclasses.field(default_factory=list)
    number: int = 1
    product: Product | None = None
    options: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def done(self) -> bool:
        """True after the purchase."""
        return self.page.kind == "done"


class WebShopEnvironment(ReplayedEnvironment[Episode]):
    """A shopping task."""

    name = "webshop"

    def __init__(self, shop: Shop):
        self._shop = shop

    def reset(self, data_idx: int) -> StepResult:
        """Starts a task at the search bar."""
        check_task(self.name, data_idx, len(self._shop.goals))
        goal = self._shop.goals[data_idx]
        self._episode = Episode(data_idx, goal, [], pages.index(goal.instruction))
        return StepResult(self._episode.page.text, 0.0, 0.0, False)

    def step(self, action: str) -> StepResult:
        """Applies an action; one that is not possible on this page changes nothing."""
        episode = self.playing
        episode.actions.append(action)
        score = 0.0
        found = _ACTION.fullmatch(action.strip())
        if found is not None:
            verb, words = found[1].lower(), found[2].strip().lower()
            if verb == "search":
                self._search(words)
            elif words in episode.page.clickables:
                score = self._click(words)
        return StepResult(episode.page.text, score, score, episode.done)

    def expert_action(self) -> str:
        """Returns the next action of an agent that knows which products fit.

        It searches with the words of the instruction and buys the first result that is worth 1. If
        there is none, it searches for the product from which the instruction was made.
        """
        episode = self.playing
        goal, found = episode.goal, episode.found
        best = next(filter(functools.partial(_fits, goal), found), goal.product)
        if best not in found:
            return f"search[{goal.product.title.lower() if found else _query(goal)}]"
        if episode.page.kind == "results":
            return f"click[{self._way_to(best, episode)}]"
        if episode.product is not best or episode.page.kind != "item":
            return f"click[{pages.PREVIOUS.lower()}]"
        for name, value in goal.options.items():
            if name in best.options and episode.options.get(name) != value:
                return f"click[{value}]"
        return f"click[{pages.BUY.lower()}]"

    def valid_actions(self) -> list[str]:
        """Returns the possible clicks, and on the first page some searches."""
        episode = self.episode
        if episode.page.kind == "index":
            goal = episode.goal
            queries = dict.fromkeys((_query(goal), goal.product.query, *goal.attributes))
            return [f"search[{query}]" for query in queries]
        return [f"click[{text}]" for text in episode.page.clickables]

    def available_actions(self) -> dict[str, Any]:
        """Returns the possible actions in the form of AgentGym's server."""
        page = self.episode.page
        return {"has_search_bar": page.kind == "index", "clickables": list(page.clickables)}

    def state(self) -> dict[str, Any]:
        """Returns the kind of page, the instruction and the chosen options, for viewers."""
        episode = self.episode
        return {
            "data_idx": episode.data_idx,
            "page": episode.page.kind,
            "instruction_text": episode.goal.instruction,
            "product": episode.product.asin if episode.product else "",
            "options": dict(episode.options),
        }

    def _search(self, query: str) -> None:
        episode = self.episode
        episode.found, episode.number = self._shop.search(query), 1
        self._show_results()

    def _show_results(self) -> None:
        episode = self.episode
        episode.product, episode.options = None, {}
        episode.page = pages.results(episode.goal.instruction, episode.found, episode.number)

    def _click(self, text: str) -> float:
        """Follows a clickable of the page; returns the reward."""
        episode = self.episode
        instruction, product = episode.goal.instruction, episode.product
        if text == pages.BACK.lower():
            episode.page = pages.index(instruction)
            episode.found, episode.product, episode.options = [], None, {}
        elif episode.page.kind == "results":
            self._click_result(text)
        elif product is not None and episode.page.kind == "item_sub_page":
            episode.page = pages.item(instruction, product)  # `< Prev` is the only other button
        elif product is not None:
            return self._click_item(text, product)
        return 0.0

    def _click_result(self, text: str) -> None:
        episode = self.episode
        turned = {pages.NEXT.lower(): 1, pages.PREVIOUS.lower(): -1}
        if text in turned:
            episode.number += turned[text]
            self._show_results()
        else:
            episode.product = next(p for p in episode.found if p.asin.lower() == text)
            episode.page = pages.item(episode.goal.instruction, episode.product)

    def _click_item(self, text: str, product: Product) -> float:
        episode = self.episode
        for name in (pages.DESCRIPTION, pages.FEATURES, pages.REVIEWS):
            if text == name.lower():
                episode.page = pages.item_sub_page(episode.goal.instruction, product, name)
                return 0.0
        if text == pages.PREVIOUS.lower():
            self._show_results()
        elif text == pages.BUY.lower():
            score = reward(episode.goal, product, episode.options)
            episode.page = pages.done(score)
            return score
        else:
            name = next(name for name, values in product.options.items() if text in values)
            episode.options[name] = text
        return 0.0

    def _way_to(self, product: Product, episode: Episode) -> str:
        """Returns the text to click on the way from the present page of results to a product."""
        wanted = episode.found.index(product) // pages.PER_PAGE + 1
        if wanted == episode.number:
            return product.asin.lower()
        return (pages.NEXT if wanted > episode.number else pages.PREVIOUS).lower()


def _fits(goal: Goal, product: Product) -> bool:
    """Returns True if the product with the wished options is worth 1."""
    chosen = {
        name: value
        for name, value in goal.options.items()
        if name in product.options and value in product.options[name]
    }
    return reward(goal, product, chosen) == 1


def _query(goal: Goal) -> str:
    """Returns the wishes of the instruction, without the price."""
    return " ".join((goal.product.query, *goal.attributes, *goal.options.values()))
