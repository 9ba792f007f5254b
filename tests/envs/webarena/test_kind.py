"""What the server of the embedded sites offers where some of them are not installed."""

import types

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena import kind


def site(name, paths, missing=None):
    return types.SimpleNamespace(name=name, paths=paths, missing=lambda: missing)


SHOP = site("shop", {"shopping": "", "shopping_admin": "/dashboard"})


def test_a_site_that_is_not_installed_is_left_out_and_told(caplog):
    trac = site("trac", {"gitlab": ""}, missing="gitlab needs Trac")
    assert kind._installed([SHOP, trac]) == ["shopping", "shopping_admin"]
    assert "trac is left out: gitlab needs Trac" in caplog.text


def test_all_sites_are_offered_where_all_are_installed(caplog):
    assert kind._installed([SHOP, site("forum", {"reddit": ""})])[-1] == "reddit"
    assert not caplog.text


def test_without_any_site_it_says_what_to_install():
    absent = [site("a", {"x": ""}, missing="install a"), site("b", {"y": ""}, missing="install b")]
    with pytest.raises(SetupError, match="install a; install b"):
        kind._installed(absent)
