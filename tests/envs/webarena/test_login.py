"""The four login forms in a real browser, and a deployment made of these forms."""

import json
import logging
import pathlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

pytest.importorskip("playwright", reason='pip install -e ".[web]"')

from agentgym_envs.base.environment import EnvironmentFault, SetupError  # noqa: E402
from agentgym_envs.webarena import login  # noqa: E402
from agentgym_envs.webarena.browser.background import Background  # noqa: E402
from agentgym_envs.webarena.browser.launch import Chromium, require_browser  # noqa: E402
from agentgym_envs.webarena.browser.process import BrowserProcess  # noqa: E402
from agentgym_envs.webarena.browser.reach import Reach, server_of  # noqa: E402
from agentgym_envs.webarena.deployed_world import DeployedWorld, read_world  # noqa: E402
from agentgym_envs.webarena.deployment import Account  # noqa: E402
from agentgym_envs.webarena.environment import WebArenaEnvironment  # noqa: E402
from agentgym_envs.webarena.login import (  # noqa: E402
    FORMS,
    LoginError,
    PlaywrightForm,
    cookies_of,
    is_logged_in,
)
from tests.envs.webarena import login_forms  # noqa: E402
from tests.envs.webarena.login_forms import BASES, PASSWORD, USERNAME  # noqa: E402
from tests.fake_server import serving  # noqa: E402

pytestmark = pytest.mark.slow

try:
    EXECUTABLE = require_browser()
except SetupError as error:
    pytest.skip(str(error), allow_module_level=True)

EMMA = Account(USERNAME, PASSWORD)
SECONDS = 60.0  # time limit of work in a browser, in seconds, on a busy machine
Work = Callable[[Any], Coroutine[Any, Any, Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(login_forms.answer) as running:
        yield running.url


@pytest.fixture(scope="module")
def in_browser(server: str) -> Iterator[Callable[[Work], Any]]:
    """Yields a function that runs work in a browser and returns the result of the work."""
    background = Background("login test")
    name = server_of(server)
    start = Chromium.start(EXECUTABLE, Reach({name: name}))
    chromium = background.run(start, SECONDS)
    yield lambda work: background.run(work(chromium.browser), SECONDS)
    background.run(chromium.stop(), SECONDS)
    background.stop()


def test_each_form_logs_in_and_its_cookies_keep_the_login(server: str, in_browser: Any):
    async def work(browser: Any) -> dict[str, tuple[bool, bool]]:
        seen = {}
        for site, path in BASES.items():
            base = server + path
            cookies = await cookies_of(browser, site, base, EMMA)
            stranger, friend = await browser.new_context(), await browser.new_context()
            await friend.add_cookies(cookies)
            seen[site] = tuple(
                [
                    await is_logged_in(
                        site, base, EMMA, PlaywrightForm(await context.new_page(), site)
                    )
                    for context in (stranger, friend)
                ]
            )
        return seen

    assert in_browser(work) == {site: (False, True) for site in BASES}


@pytest.mark.parametrize("site", BASES)
def test_the_error_for_a_refused_account_does_not_contain_the_password(
    server: str, in_browser: Any, site: str
):
    wrong = Account(USERNAME, "not-the-word")
    with pytest.raises(LoginError, match=f"{site}: emma is not logged in") as caught:
        in_browser(lambda browser: cookies_of(browser, site, server + BASES[site], wrong))
    assert "not-the-word" not in str(caught.value)


def test_the_error_for_a_page_without_the_form_names_the_field(
    server: str, in_browser: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(login, "ACTION_SECONDS", 0.5)
    with pytest.raises(LoginError, match="/lab/login has no field with label 'Username'"):
        in_browser(lambda browser: cookies_of(browser, "reddit", f"{server}/lab", EMMA))


def test_the_error_for_a_failing_field_does_not_contain_the_typed_text(in_browser: Any):
    async def broken(browser: Any) -> None:
        page = await (await browser.new_context()).new_page()
        page.set_default_timeout(500)
        await page.set_content('<input data-testid="password-field" disabled>')
        await PlaywrightForm(page, "gitlab").fill(FORMS["gitlab"].password, PASSWORD)

    with pytest.raises(LoginError) as caught:
        in_browser(broken)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def deployment(
    folder: pathlib.Path, server: str, recordings: str = "", **account: str
) -> pathlib.Path:
    """Writes a deployment file for the server with three tasks; returns the path of the file."""
    who = {"username": USERNAME, "password": PASSWORD} | account
    private = "__REDDIT__/user/emma/account"
    done = {"must_include": ["delete account"]}
    target = {"url": private, "locator": "", "required_contents": done}
    task = {
        "sites": ["reddit"],
        "storage_state": "./.auth/reddit_state.json",
        "start_url": private,
        "intent": "Say what you see.",
        "eval": {
            "eval_types": ["string_match", "program_html"],
            "reference_answers": {"must_include": ["account"]},
            "program_html": [target],
        },
    }
    free = {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": ["an account"]}}
    tasks = [task | {"task_id": 1}, task | {"task_id": 2, "eval": free}, task | {"task_id": 3}]
    tasks[2]["storage_state"] = None
    (folder / "tasks.json").write_text(json.dumps(tasks))
    content = {
        "sites": {site: {"url": server + path, **who} for site, path in BASES.items()},
        "cookies": str(folder / "cookies"),
        "task_file": str(folder / "tasks.json"),
        "patience_seconds": 0,
        "recordings": recordings,
    }
    (folder / "deployment.json").write_text(json.dumps(content))
    return folder / "deployment.json"


@pytest.fixture
def make_world(tmp_path: pathlib.Path, server: str) -> Iterator[Callable[..., DeployedWorld]]:
    """Yields a function that makes a world; the browser of the world is closed after the test."""
    made: list[DeployedWorld] = []

    def make(**options: str) -> DeployedWorld:
        made.append(read_world(deployment(tmp_path, server, **options)))
        return made[-1]

    yield make
    for world in made:
        BrowserProcess.get(world.reach).stop()


def test_a_task_is_played_with_its_account_and_shows_no_secret(
    make_world: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO):
        world = make_world()
        assert "2 of 3 tasks; left out: 1 for want of a judge (fuzzy_match)" in caplog.text
        environment = WebArenaEnvironment(world)
        first = environment.reset(0)
        assert "button 'Delete account'" in first.observation
        assert "URL: http://reddit.com/user/emma/account" in first.observation
        last = environment.step("```stop [It is my account]```")
        environment.close()
    assert (last.reward, last.done) == (1.0, True)
    cookie = json.loads((tmp_path / "cookies" / "reddit_state.json").read_text())["cookies"]
    for secret in (PASSWORD, *(c["value"] for c in cookie if len(c["value"]) > 3)):
        assert secret not in caplog.text + first.observation + last.observation


def test_scored_episodes_are_recorded_with_their_requests(make_world: Any, tmp_path: pathlib.Path):
    folder = tmp_path / "recordings"
    environment = WebArenaEnvironment(make_world(recordings=str(folder)))
    environment.reset(0)  # this episode is not stopped, so it leaves no recording
    environment.reset(1)
    environment.step("```click [1]```")
    environment.step("```stop [It is\u2028my account]```")
    environment.close()
    (line,) = (folder / "episodes.jsonl").read_text().removesuffix("\n").split("\n")
    row = json.loads(line)
    assert (row["task_id"], row["answer"]) == (3, "It is\u2028my account")
    assert [path.name for path in folder.glob("*.har")] == [row["trace"]]
    entries = json.loads((folder / row["trace"]).read_text())["log"]["entries"]
    assert any(entry["request"]["url"].endswith("/user/emma/account") for entry in entries)
    assert folder.stat().st_mode & 0o077 == 0  # the recorded requests contain cookies


def test_a_task_without_an_account_is_played_without_a_login(make_world: Any):
    environment = WebArenaEnvironment(make_world())
    first = environment.reset(1)
    environment.close()
    assert "button 'Log in'" in first.observation


def test_all_accounts_are_logged_in_before_the_first_episode(
    make_world: Any, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
):
    world = make_world()
    world.log_in_everywhere()
    assert len(list((tmp_path / "cookies").glob("*_state.json"))) == len(BASES)
    with caplog.at_level(logging.INFO):
        world.log_in_everywhere()
    assert "logging in" not in caplog.text


def test_a_refused_account_stops_the_start_and_ends_an_episode(make_world: Any):
    world = make_world(password="not-the-word")
    with pytest.raises(SetupError, match="shopping: emma is not logged in"):
        world.log_in_everywhere()
    with pytest.raises(EnvironmentFault, match="reddit: emma is not logged in"):
        world.start(world.entries[0].task.at(world.urls), is_original=False)
