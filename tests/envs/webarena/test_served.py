"""Environments that a server offers when some of the embedded sites are not installed."""

import types

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena import served


def site(name, paths, missing=None):
    return types.SimpleNamespace(name=name, paths=paths, missing=lambda: missing)


SHOP = site("shop", {"shopping": "", "shopping_admin": "/dashboard"})


def test_a_missing_site_is_left_out_and_reported(caplog):
    trac = site("trac", {"gitlab": ""}, missing="gitlab needs Trac")
    assert served._installed([SHOP, trac]) == ["shopping", "shopping_admin"]
    assert "trac is left out: gitlab needs Trac" in caplog.text


def test_all_sites_are_offered_if_all_are_installed(caplog):
    assert served._installed([SHOP, site("forum", {"reddit": ""})])[-1] == "reddit"
    assert not caplog.text


def test_the_error_without_any_site_names_the_packages():
    absent = [site("a", {"x": ""}, missing="install a"), site("b", {"y": ""}, missing="install b")]
    with pytest.raises(SetupError, match="install a; install b"):
        served._installed(absent)
