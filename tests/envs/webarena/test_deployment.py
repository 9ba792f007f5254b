"""A real deployment that one JSON file describes: valid and invalid contents, lifetime of cookies."""

import json
import multiprocessing
import pathlib
import stat
import time
from typing import Any

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena.cookies import CookieFolder, are_fresh
from agentgym_envs.webarena.deployment import read_deployment

SECRET = "s3cret-word"


def content(**changes: Any) -> dict[str, Any]:
    return {
        "sites": {
            "shopping": {"url": "http://web:7770", "username": "emma", "password": SECRET},
            "shopping_admin": {"url": "http://web:7780/admin", "username": "a", "password": SECRET},
            "map": {"url": "http://web:3000"},
        }
    } | changes


def write(folder: pathlib.Path, value: Any) -> pathlib.Path:
    path = folder / "deployment.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_minimal_file_is_accepted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AGENTGYM_DATA", str(tmp_path))
    deployment = read_deployment(write(tmp_path, content()))
    assert deployment.urls.bases["shopping_admin"] == "http://web:7780/admin"
    assert deployment.accounts["shopping"].username == "emma"
    assert "map" not in deployment.accounts
    assert deployment.cookies == tmp_path / "webarena" / "cookies"
    assert deployment.task_file is None
    assert deployment.recordings is None
    assert deployment.patience_seconds == 3.0
    assert deployment.judge is None


def test_functions_of_the_shop_need_an_administrator_account(tmp_path: pathlib.Path):
    deployment = read_deployment(write(tmp_path, content()))
    assert {"shopping_get_latest_order_url", "reddit_get_post_url"} <= set(deployment.functions())
    without = content(sites={"shopping": {"url": "http://web:7770"}})
    functions = read_deployment(write(tmp_path, without)).functions()
    assert "shopping_get_latest_order_url" not in functions


def test_the_key_of_a_judge_is_read_from_a_separate_file(tmp_path: pathlib.Path):
    key = tmp_path / "key"
    key.write_text(f"{SECRET}\n")
    judge = {"url": "http://127.0.0.1:8000/v1", "model": "m", "key_file": str(key), "seconds": 5}
    made = read_deployment(write(tmp_path, content(judge=judge))).judge
    assert made is not None and made.api_key == SECRET and made.seconds == 5.0
    assert SECRET not in repr(made)
    key.unlink()
    with pytest.raises(SetupError, match="key of the judge.*FileNotFoundError"):
        read_deployment(write(tmp_path, content(judge=judge)))


def test_a_deployment_never_prints_its_passwords(tmp_path: pathlib.Path):
    deployment = read_deployment(write(tmp_path, content()))
    assert SECRET not in repr(deployment)
    assert SECRET not in repr(deployment.functions())


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("{", "is not JSON"),
        ([], "should be an object"),
        (content(cookie=SECRET), "has no field 'cookie'; fields are sites, cookies"),
        ({}, "sites should be dict, found nothing"),
        (content(sites={"amazon": {"url": "http://a"}}), "sites should be some of shopping,"),
        (content(sites={"map": {"url": "web:3000"}}), "address of map"),
        (content(sites={"map": {"url": 3000}}), "sites.map: url should be str, found int"),
        (
            content(sites={"reddit": {"url": "http://a", "password": SECRET}}),
            "sites.reddit: username should be str, found nothing",
        ),
        (
            content(sites={"reddit": {"url": "http://a", "username": [SECRET], "password": "x"}}),
            "sites.reddit: username should be str, found list",
        ),
        (content(judge={"url": "http://a"}), "judge: model should be str, found nothing"),
        (content(patience_seconds="3"), "patience_seconds should be float, found str"),
    ],
)
def test_errors_name_the_field_but_not_its_value(tmp_path: pathlib.Path, wrong: Any, message: str):
    with pytest.raises(SetupError, match=message) as caught:
        read_deployment(write(tmp_path, wrong))
    assert SECRET not in str(caught.value)


def test_the_error_for_a_missing_file_names_it(tmp_path: pathlib.Path):
    with pytest.raises(SetupError, match="nowhere.json: No such file"):
        read_deployment(tmp_path / "nowhere.json")


def cookie(expires: float) -> dict[str, Any]:
    return {"name": "session", "value": SECRET, "expires": expires}


@pytest.mark.parametrize(
    "cookies, age, fresh",
    [
        ([cookie(-1)], 0, True),
        ([cookie(-1)], 5 * 3600, False),  # no expiry time, but the login is too old
        ([cookie(3600)], 1000, True),  # more than half of the lifetime is left
        ([cookie(3600)], 2000, False),
        ([cookie(86400), cookie(3600)], 2000, False),  # the cookie that expires first decides
        ([cookie(4 * 3600)], 4 * 3600 - 2800, True),
        ([cookie(4 * 3600)], 4 * 3600 - 2600, False),  # less than 45 minutes are left
        ([cookie(60)], 3000, True),  # a cookie with a lifetime of a minute does not count as login
        ([], 0, True),
    ],
)
def test_cookies_are_renewed_before_they_expire(cookies: list[Any], age: float, fresh: bool):
    now = 1_700_000_000.0
    moved = [{**c, "expires": c["expires"] + now if c["expires"] > 0 else -1} for c in cookies]
    assert are_fresh(moved, saved_at=now, now=now + age) == fresh


def test_cookies_are_fetched_once_and_readable_only_by_their_owner(tmp_path: pathlib.Path):
    logins: list[str] = []

    def log_in(site: str) -> list[Any]:
        logins.append(site)
        return [cookie(time.time() + 7200)]

    folder = CookieFolder(tmp_path / "cookies", log_in)
    first = folder.get("reddit")
    assert CookieFolder(tmp_path / "cookies", log_in).get("reddit") == first
    assert logins == ["reddit"]
    path = tmp_path / "cookies" / "reddit_state.json"
    assert json.loads(path.read_text()) == {"cookies": first, "origins": []}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not list(path.parent.glob("*.part"))


@pytest.mark.parametrize("broken", ["", "{}", "[1]", '{"cookies": [{"name": "x"}]}'])
def test_a_broken_cookie_file_is_replaced(tmp_path: pathlib.Path, broken: str):
    (tmp_path / "gitlab_state.json").write_text(broken)
    new = [cookie(-1)]
    assert CookieFolder(tmp_path, lambda site: new).get("gitlab") == new


def slow_login(folder: pathlib.Path, number: int) -> None:
    def log_in(site: str) -> list[Any]:
        with (folder / "logins").open("a") as file:
            file.write(f"{number}\n")
        time.sleep(0.2)
        return [cookie(-1)]

    CookieFolder(folder, log_in).get("gitlab")


def test_several_processes_log_in_once(tmp_path: pathlib.Path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=slow_login, args=(tmp_path, n)) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len((tmp_path / "logins").read_text().splitlines()) == 1
