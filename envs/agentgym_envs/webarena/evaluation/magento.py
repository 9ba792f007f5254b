"""Functions of WebArena's tasks that read data of its shop (Magento) over REST."""

import dataclasses
import urllib.parse
from collections.abc import Mapping
from typing import Any

from agentgym_envs.webarena.evaluation.functions import Function
from agentgym_envs.webarena.evaluation.http import HttpError, fetch_json
from agentgym_envs.webarena.evaluation.page import PageError

LATEST_ORDER = {
    "searchCriteria[sortOrders][0][field]": "created_at",
    "searchCriteria[sortOrders][0][direction]": "DESC",
    "searchCriteria[pageSize]": "1",
}


@dataclasses.dataclass(frozen=True)
class Magento:
    """REST interface of a shop, used with its administrator's account."""

    url: str
    username: str
    password: str = dataclasses.field(repr=False)
    seconds: float = 10.0  # a call takes two requests, and scoring has 25 s in all

    def functions(self) -> Mapping[str, Function]:
        """Returns the table of functions for `evaluate`."""
        return {
            "shopping_get_latest_order_url": self.latest_order_url,
            "shopping_get_sku_latest_review_rating": self.latest_review_rating,
            "shopping_get_sku_latest_review_author": self.latest_review_author,
        }

    async def latest_order_url(self) -> str:
        """Returns the address of the customer's page about the shop's latest order.

        Raises:
          PageError: The shop did not return an order.
        """
        orders = await self._get(f"/rest/V1/orders?{urllib.parse.urlencode(LATEST_ORDER)}")
        try:
            number = int(orders["items"][0]["increment_id"])
        except (LookupError, TypeError, ValueError):
            raise PageError(f"{self.url} names no latest order") from None
        return f"{self.url}/sales/order/view/order_id/{number}/"

    async def latest_review_author(self, sku: str) -> str:
        """Returns the nickname under a product's latest review; "" if there is none.

        Raises:
          PageError: The shop did not return the reviews.
        """
        reviews = await self._reviews(sku)
        return str(reviews[-1]["nickname"]) if reviews else ""

    async def latest_review_rating(self, sku: str) -> str:
        """Returns the stars of a product's latest review in percent; "" if there is none.

        Raises:
          PageError: The shop did not return the rating.
        """
        reviews = await self._reviews(sku)
        try:
            return str(reviews[-1]["ratings"][0]["percent"]) if reviews else ""
        except (LookupError, TypeError):
            raise PageError(f"the latest review of {sku} has no rating") from None

    async def _reviews(self, sku: str) -> list[Any]:
        """Returns a product's reviews, the latest last."""
        reviews = await self._get(f"/rest/V1/products/{urllib.parse.quote(sku, safe='')}/reviews")
        if not isinstance(reviews, list):
            raise PageError(f"{self.url} answered no list of reviews of {sku}")
        return reviews

    async def _get(self, path: str) -> Any:
        """Sends a request with the administrator's rights and returns the answer."""
        account = {"username": self.username, "password": self.password}
        token_url = f"{self.url}/rest/default/V1/integration/admin/token"
        try:
            token = await fetch_json(token_url, body=account, seconds=self.seconds)
            headers = {"Authorization": f"Bearer {token}"}
            return await fetch_json(self.url + path, headers=headers, seconds=self.seconds)
        except HttpError as error:
            raise PageError(f"Magento's REST interface: {error}") from None
