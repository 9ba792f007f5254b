"""Functions that query the shop's REST interface, tested against a small server."""

import asyncio
import urllib.parse
from typing import Any

import pytest

from agentgym_envs.webarena.evaluation.magento import Magento
from agentgym_envs.webarena.evaluation.page import PageError
from tests.fake_server import Request, serving

PASSWORD = "s3cret-word"


def review(author: str, percent: int) -> dict[str, Any]:
    return {"nickname": author, "ratings": [{"rating_name": "Rating", "percent": percent}]}


def shop(request: Request) -> tuple[int, Any]:
    """Answers with two reviews of one product, or with orders, sorted if the request says so."""
    path = request.path
    if path == "/rest/default/V1/integration/admin/token":
        is_admin = request.json() == {"username": "admin", "password": PASSWORD}
        return (200, "token-1") if is_admin else (401, {"message": PASSWORD})
    if request.headers.get("Authorization") != "Bearer token-1":
        return 401, {}
    parts = urllib.parse.urlsplit(path)
    query = dict(urllib.parse.parse_qsl(parts.query))
    if parts.path == "/rest/V1/orders":
        newest = query["searchCriteria[sortOrders][0][direction]"] == "DESC"
        number = "000000187" if newest else "000000001"
        return 200, {"items": [{"increment_id": number}]}
    if parts.path == "/rest/V1/products/A%2FB/reviews":
        return 200, [review("Ann", 20), review("Bo", 80)]
    return 200, []


def call(name: str, *arguments: str, answer: Any = shop, password: str = PASSWORD) -> str:
    with serving(answer) as server:
        functions = Magento(server.url, "admin", password, seconds=5).functions()
        return asyncio.run(functions[name](*arguments)).replace(server.url, "")  # type: ignore[arg-type]


def test_the_url_of_the_latest_order_contains_its_number():
    assert call("shopping_get_latest_order_url") == "/sales/order/view/order_id/187/"


def test_the_latest_review_is_the_last_one():
    assert call("shopping_get_sku_latest_review_author", "A/B") == "Bo"
    assert call("shopping_get_sku_latest_review_rating", "A/B") == "80"


def test_a_product_without_reviews_has_empty_author_and_rating():
    assert call("shopping_get_sku_latest_review_author", "C") == ""
    assert call("shopping_get_sku_latest_review_rating", "C") == ""


def test_the_error_for_a_refused_login_does_not_contain_the_password():
    with pytest.raises(PageError, match="admin/token answered 401") as caught:
        call("shopping_get_latest_order_url", password="wrong-s3cret")
    assert "s3cret" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("answer", [{}, {"items": []}, [], b"no json", {"items": [{}]}])
def test_an_answer_without_an_order_is_an_error(answer: Any):
    with pytest.raises(PageError):
        call("shopping_get_latest_order_url", answer=lambda request: (200, answer))


def test_an_unreachable_shop_is_an_error():
    functions = Magento("http://127.0.0.1:9", "admin", PASSWORD, seconds=5).functions()
    with pytest.raises(PageError):
        asyncio.run(functions["shopping_get_latest_order_url"]())  # type: ignore[arg-type]
