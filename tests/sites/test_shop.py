"""The embedded shop, tested without a browser.

The shop is prepared once per version of its sources, in about 10 s.
"""

import html
import json
import pathlib
import re
import shutil
import tempfile
import urllib.error
import urllib.request

import pytest

from agentgym_sites.cluster import Cluster
from agentgym_sites.preparation import prepare
from agentgym_sites.shop.site import make_site
from agentgym_sites.shop.tables import category_path, tables
from agentgym_sites.site import is_healthy
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

pytest.importorskip("oscar", reason="needs django-oscar: pip install -e '.[web]'")


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    kept = pathlib.Path(tempfile.gettempdir()) / "agentgym-tests-webarena"
    folder = tmp_path_factory.mktemp("sites")
    prepared = prepare(make_site(), kept)
    shutil.copytree(prepared, folder / "shop" / prepared.name)
    with Cluster(folder, [make_site()]) as running:
        yield running


@pytest.fixture(scope="module")
def get(sites):
    cookies = sites.storage_state(["shopping", "shopping_admin"])["cookies"]
    cookie = "; ".join(f"{each['name']}={each['value']}" for each in cookies)
    root = sites.urls["shopping"]

    def get(path, episode="a", *, has_tags=False):
        headers = {"Cookie": cookie, "X-Episode": episode}
        request = urllib.request.Request(root + path, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read().decode()
        if not has_tags:
            text = re.sub(r"<[^>]*>", " ", text)
        return " ".join(html.unescape(text).split())

    return get


def test_the_shop_has_enough_products_customers_and_orders():
    shop = tables()
    assert len(shop.products) >= 400 and len({p.shelf.name for p in shop.products}) >= 12
    assert len(shop.customers) >= 60 and len(shop.orders) >= 300 and len(shop.reviews) >= 500
    assert len({product.title for product in shop.products}) == len(shop.products)
    assert len({customer.email for customer in shop.customers}) == len(shop.customers)


def test_prices_within_a_category_differ():
    shop = tables()
    for shelf in {product.shelf for product in shop.products}:
        prices = [product.cents for product in shop.shelf_products(shelf.name)]
        assert len(set(prices)) == len(prices)


def test_a_request_without_an_episode_is_refused(sites):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(sites.urls["shopping"] + "/catalogue/", timeout=PATIENCE_S)
    assert refused.value.code == 400
    assert "X-Episode" in refused.value.read().decode()


def test_a_product_page_shows_the_values_of_the_tables(get):
    product = tables().products[100]
    page = get(product.path)
    for text in (product.title, f"${product.price}", product.description):
        assert text in page
    for name, value in product.attributes:
        assert f"{name} {value}" in page


def test_a_search_finds_only_products_with_all_words(get):
    product = tables().products[200]
    path = "/search/?q=" + urllib.request.quote(f"{product.line} {product.brand} {product.upc}")
    assert "Found 1 result." in get(path)
    # the visible text is shortened after four words
    assert product.title in get(path, has_tags=True)
    assert "Found 0 results." in get(path + "%20aardvark")


def test_a_category_can_be_sorted_and_filtered(get):
    shelf = tables().products[0].shelf
    cheapest = sorted(tables().shelf_products(shelf.name), key=lambda product: product.cents)
    page = get(category_path(shelf) + "?sort_by=price-asc")
    places = [page.index(product.title) for product in cheapest[:5]]
    assert places == sorted(places)
    assert cheapest[-1].title not in page
    below = sum(product.cents <= 2000 for product in cheapest)
    page = get(category_path(shelf) + "?selected_facets=price:[0%20TO%2020]&sort_by=price-asc")
    assert f"{below} results" in page


def test_the_agent_is_logged_in_as_customer_and_as_administrator(get):
    assert tables().customer.name in get("/accounts/profile/")
    assert "Total Customers" in get("/dashboard/")
    order = tables().orders_of(tables().customer)[-1]
    assert f"${order.total}" in get(f"/accounts/orders/{order.number}/")
    assert order.customer.email in get(f"/dashboard/orders/{order.number}/")


def test_pages_show_the_time_of_the_episode(get):
    get("/", episode="clock")
    # static files do not advance the clock
    get("/static/oscar/js/oscar/ui.js", episode="clock", has_tags=True)
    page = get("/dashboard/vouchers/create/", episode="clock", has_tags=True)
    # the first page redirects, so two pages advance the clock
    assert 'value="2024-03-01 12:00:02"' in page


def test_an_ended_episode_starts_from_the_beginning(sites):
    request = urllib.request.Request(
        sites.urls["shopping"] + "/accounts/login/", headers={"X-Episode": "anew"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        first = response.headers["Set-Cookie"]
    sites.end_episode("anew")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        # the episode starts again, so the tokens of the first answer are repeated
        assert response.headers["Set-Cookie"] == first


def test_login_cookies_are_valid_for_loopback_only(sites):
    states = sites.storage_state(["shopping", "shopping_admin"])
    assert [cookie["domain"] for cookie in states["cookies"]] == ["127.0.0.1"] * 2
    assert len({cookie["name"] for cookie in states["cookies"]}) == 2
    assert json.dumps(states)


def test_the_shop_answers_health_checks(sites):
    assert is_healthy(sites.urls["shopping"])


@pytest.mark.parametrize(
    "name", ["", "..", "..%2f", "..%2f..%2fetc/passwd", "/etc/passwd", "%00", "x" * 300, "no.css"]
)
def test_a_missing_static_file_is_not_found(sites, name):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{sites.urls['shopping']}/static/{name}", timeout=60)
    assert caught.value.code == 404
    caught.value.close()
