"""Actions in a real browser on a tiny web site."""

import base64
import os
import pathlib
import subprocess
import tempfile
import time
import urllib.parse

import pytest

from agentgym_envs.base.environment import SetupError
from agentgym_envs.webarena.browser import temporary
from agentgym_envs.webarena.browser.actions import read_action
from agentgym_envs.webarena.browser.errors import ActionRefused, PageLost
from agentgym_envs.webarena.browser.launch import (
    CHROMIUM_VARIABLE,
    browser_name,
    find_chromium,
    require_browser,
)
from agentgym_envs.webarena.browser.reach import Reach
from agentgym_envs.webarena.browser.start import Start

try:
    require_browser()
except SetupError as error:
    pytest.skip(str(error), allow_module_level=True)

from agentgym_envs.webarena.browser.process import BrowserProcess
from tests.envs.webarena.browser_pages import make_served_environment, number, reach

pytestmark = pytest.mark.slow

FRONT = "http://shopping.test/"


class Hands:
    """A browser session with short methods for actions."""

    def __init__(self, process, session):
        self.process = process
        self.session = session

    def act(self, text):
        """Performs an action; returns the observation after it."""
        self.process.run(self.session.perform(read_action(text)), 20)
        return self.session.sight.text

    def refused(self, text):
        """Performs an action that must be rejected; returns the error message."""
        with pytest.raises(ActionRefused) as caught:
            self.act(text)
        return str(caught.value)

    def number(self, words):
        return number(self.session.sight.text, words)

    def click(self, words):
        return self.act(f"click [{self.number(words)}]")

    @property
    def tabs(self):
        return self.session.sight.text.splitlines()[0]


@pytest.fixture(scope="module")
def process():
    running = BrowserProcess(reach())
    running.start()
    yield running
    running.stop()


@pytest.fixture
def opened(process):
    sessions = []

    def open_page(*urls, **options):
        start = Start(urls or (FRONT,), {"X-Episode": f"e{len(sessions)}"}, **options)
        sessions.append(process.run(process.open(start), 30))
        return Hands(process, sessions[-1])

    yield open_page
    for session in sessions:
        process.run(session.close(), 10)


@pytest.fixture
def hands(opened):
    return opened(has_calendar=True)


def test_the_observation_begins_with_the_tabs_and_an_empty_line(hands):
    lines = hands.session.sight.text.splitlines()
    assert lines[:3] == [
        "Tab 0 (current): Tiny shop",
        "",
        "[1] RootWebArea 'Tiny shop' focused: True",
    ]
    assert lines[3] == "\t[2] heading 'Tiny shop'"


def test_a_click_follows_a_link_and_the_history_works_in_both_directions(hands):
    assert "heading '/about'" in hands.click("link 'About us'")
    assert hands.session.sight.url == FRONT + "about"
    assert "Tiny shop" in hands.act("go_back")
    assert "heading '/about'" in hands.act("go_forward")
    hands.act("go_forward")  # the history has no next page, so nothing happens
    assert hands.session.sight.url == FRONT + "about"


def test_element_numbers_of_another_page_are_rejected(hands):
    old = hands.number("link 'About us'")
    hands.click("link 'About us'")
    assert hands.refused(f"click [{old}]") == f"there is no element [{old}] on this page"


def test_typing_appends_to_a_field_and_enter_submits_its_form(hands):
    field = hands.number("textbox 'Search'")
    assert "StaticText 'blue mug'" in hands.act(f"type [{field}] [blue mug] [0]")
    assert "q=blue mug with a lid" in hands.act(f"type [{field}] [ with a lid] [1]")


def test_keys_edit_a_field(hands):
    field = hands.number("textbox 'Search'")
    hands.act(f"type [{field}] [wrong] [0]")
    hands.act("press [ctrl+A]")
    hands.act("press [Backspace]")
    hands.act(f"type [{field}] [right] [0]")
    assert "q=right" in hands.act("press [enter]")
    assert hands.refused("press [Hyper]") == "'Hyper' is no key; keys are like Enter or Control+a"


def test_an_option_is_chosen_by_its_text_or_by_a_click(hands):
    box = hands.number("combobox 'Kind'")
    assert "combobox 'Kind' hasPopup: menu expanded: False value: Toys" in hands.act(
        f"type [{box}] [toys] [1]"
    )
    assert "option 'Kitchen' selected: False" in hands.act(f"click [{box}]")
    seen = hands.click("option 'Kitchen'")
    assert "value: Kitchen" in seen and "option" not in seen
    assert hands.refused(f"type [{box}] [Garden]") == (
        "'Garden' is none of the options: 'All', 'Toys', 'Kitchen'"
    )
    assert "kind=Kitchen" in hands.click("button 'Go'")


def test_a_date_is_typed_as_a_whole(hands):
    day = hands.number("Date 'Day'")
    assert "Date 'Day' value: 2024-03-31" in hands.act(f"type [{day}] [2024-03-31] [0]").replace(
        " focused: True", ""
    )
    assert hands.refused(f"type [{day}] [31 March]").startswith("'31 March' does not fit")


def test_scrolling_shows_the_elements_below(hands):
    assert "The bottom" not in hands.session.sight.text
    hands.act("scroll [down]")
    hands.act("scroll [down]")
    assert "The bottom" in hands.act("press [End]")
    assert "heading 'Tiny shop'" in hands.act("press [Home]")


def test_tabs_are_opened_focused_and_closed(hands):
    hands.act("new_tab")
    assert hands.tabs == "Tab 0: Tiny shop | Tab 1 (current): "
    hands.act(f"goto [{FRONT}about]")
    assert hands.tabs == "Tab 0: Tiny shop | Tab 1 (current): /about"
    hands.act("tab_focus [0]")
    assert hands.tabs == "Tab 0 (current): Tiny shop | Tab 1: /about"
    assert hands.refused("tab_focus [2]") == "there is no tab 2; tabs are 0 to 1"
    hands.act("close_tab")
    assert hands.tabs == "Tab 0 (current): /about"
    hands.act("close_tab")
    assert hands.session.sight.url == "about:blank"


def test_a_link_to_a_new_window_opens_and_focuses_a_tab(hands):
    hands.click("link 'New window'")
    assert hands.tabs == "Tab 0: Tiny shop | Tab 1 (current): /window"


def test_a_task_can_begin_with_several_tabs(opened):
    assert opened(FRONT, FRONT + "about").tabs == "Tab 0 (current): Tiny shop | Tab 1: /about"


def test_dialogs_are_accepted_by_default_and_dismissed_in_webarenas_mode(opened):
    hands = opened()
    assert "button 'Said yes'" in hands.click("button 'Ask'")
    assert hands.session.dialogs == ["confirm: Sure?"]
    assert "button 'Said no'" in opened(is_original=True).click("button 'Ask'")


def test_a_page_is_observed_after_its_requests_are_answered(hands):
    assert "button 'Fetched'" in hands.click("button 'Fetch'")


def test_a_page_that_never_becomes_idle_is_observed_after_a_timeout(hands):
    began = time.monotonic()
    assert "heading 'Restless'" in hands.act(f"goto [{FRONT}restless]")
    assert time.monotonic() - began < 120


def test_pages_have_the_date_of_the_sites(hands):
    assert "button '2024'" in hands.click("button 'Year'")


def test_downloads_have_no_effect(hands):
    assert "Tiny shop" in hands.click("link 'Price list'")
    assert "a file to download" in hands.refused(f"goto [{FRONT}file.zip]")


@pytest.mark.parametrize(
    "address",
    ["file:///etc/passwd", "data:text/html,hi", "javascript:alert(1)", "chrome://version"]
    + ["about:blank", "view-source:http://shopping.test/", "ftp://shopping.test/", "http://[x"]
    + ["http://127.0.0.1/", "http://localhost/", "http://shopping.test:81/", "http://a@b.test/"]
    + ["https://shopping.test/", "http://elsewhere.test/", "http://shopping.test.elsewhere.test/"],
)
def test_no_other_address_can_be_opened(address):
    assert reach().problem(address) is not None


def test_the_browser_cannot_reach_other_servers(opened):
    hands = opened()
    other = reach().servers["shopping.test:80"]
    for address in (f"http://{other}/", f"http://localhost:{other.partition(':')[2]}/"):
        script = f"fetch('{address}', {{mode: 'no-cors'}}).then(() => 'reached', () => 'not')"
        assert hands.process.run(hands.session.tab.page.evaluate(script), 10) == "not"
    hands.click("link 'Elsewhere'")
    assert hands.session.sight.url.startswith("chrome-error:")
    assert "Tiny shop" in hands.act("go_back")


def test_a_site_that_is_down_or_overloaded_is_not_a_fault_of_the_agent(opened):
    hands = opened()
    with pytest.raises(PageLost, match="CONNECTION_REFUSED"):
        hands.act("goto [http://reddit.test/]")
    with pytest.raises(PageLost, match="status 503"):
        opened().act(f"goto [{FRONT}broken]")
    with pytest.raises(PageLost):
        opened("http://reddit.test/")


def test_a_crashed_page_ends_only_its_session(opened):
    hands, other = opened(), opened()
    crash = hands.session.tab.page.goto("chrome://crash", timeout=2000)
    with pytest.raises(Exception, match="crashed|ERR_"):
        hands.process.run(crash, 5)
    with pytest.raises(PageLost):
        hands.act("scroll [down]")
    assert "heading '/about'" in other.click("link 'About us'")


def test_sessions_share_neither_cookies_nor_history(opened):
    one, other = opened(), opened()
    one.process.run(one.session.tab.page.evaluate("document.cookie = 'a=1'"), 5)
    read = other.session.tab.page.evaluate("document.cookie")
    assert other.process.run(read, 5) == ""


def test_a_screenshot_is_a_jpeg_of_bounded_size(hands):
    picture = hands.process.run(hands.session.picture(scale=0.5, quality=60), 10)
    data = base64.b64decode(picture)
    assert data[:3] == b"\xff\xd8\xff" and len(data) < 60_000


@pytest.fixture
def short_path():
    """Yields a folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        yield pathlib.Path(folder)


def test_the_files_of_a_killed_browser_are_removed(short_path, monkeypatch):
    tmp_path = short_path
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / f"agentgym-browser-{ended.pid}-x" / "profile").mkdir(parents=True)
    alive = tmp_path / f"agentgym-browser-{os.getpid()}-y"
    alive.mkdir()
    process = BrowserProcess(Reach({}))
    process.start()
    (mine,) = set(tmp_path.iterdir()) - {alive}
    assert any(mine.iterdir()) and "TMPDIR" not in os.environ
    process.stop()
    assert list(tmp_path.iterdir()) == [alive]


def test_socket_paths_are_short_for_any_temporary_folder(tmp_path, monkeypatch):
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    folder = temporary.new_folder()
    try:
        socket_path = folder / "playwright_chromiumdev_profile-XXXXXX" / "SingletonSocket"
        assert len(str(socket_path)) <= 107
    finally:
        folder.rmdir()


def test_another_browser_is_only_used_if_the_variable_names_it(tmp_path, caplog):
    other = tmp_path / "chromium"
    other.write_text("#!/bin/sh\necho Chromium 156.0.8078.79 built on Debian\n")
    other.chmod(0o755)
    with pytest.raises(SetupError, match="PATH has no chromium-headless-shell"):
        find_chromium({"PATH": str(tmp_path)})
    named = find_chromium({"PATH": str(tmp_path), CHROMIUM_VARIABLE: "chromium"})
    assert browser_name(named) == "chromium 156.0.8078.79"
    assert "is not chromium-headless-shell" in caplog.text


def test_a_program_without_a_version_is_refused_as_browser(tmp_path):
    silent = tmp_path / "chromium"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    with pytest.raises(SetupError, match="expected the version of a Chromium"):
        browser_name(str(silent))


def test_version_and_manifest_name_the_browser():
    name, version = browser_name(require_browser()).split()
    served = make_served_environment()
    assert served.spec.version.endswith(f"-{name}-{version}")
    assert {row["browser"] for row in served.tasks()} == {f"{name} {version.split('.')[0]}"}


def test_no_link_frame_or_field_of_a_page_shows_a_local_file(hands, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("content of a file of the host")
    page = (
        f"<a href='file://{file}'>Link</a> <a href='file://{file}' target=_blank>Window</a>"
        f"<a href='view-source:file://{file}'>Source</a>"
        f"<button onclick=\"location='file://{file}'\">Script</button>"
        "<label>File <input type=file></label>"
        f"<iframe src='file://{file}'></iframe><object data='file://{file}'></object>"
    )
    address = f"goto [{FRONT}x?a={urllib.parse.quote(page)}]"
    for words in ("link 'Link'", "link 'Window'", "link 'Source'", "button 'Script'"):
        assert "content of a file" not in hands.act(address)
        assert "content of a file" not in hands.click(words)
    hands.act(address)
    field = hands.number("'File")
    for text in (f"type [{field}] [{file}] [1]", f"click [{field}]", "press [Control+o]"):
        try:
            assert "content of a file" not in hands.act(text)
        except ActionRefused:
            continue
    count = "document.querySelector('input').files.length"
    assert hands.process.run(hands.session.tab.page.evaluate(count), 10) == 0


def test_the_error_for_a_missing_browser_names_the_package(tmp_path):
    with pytest.raises(SetupError, match="apt-get install chromium-headless-shell"):
        find_chromium({"PATH": str(tmp_path)})
    with pytest.raises(SetupError, match=f"{CHROMIUM_VARIABLE} is nothing"):
        find_chromium({"PATH": str(tmp_path), CHROMIUM_VARIABLE: "nothing"})
    program = tmp_path / "my-browser"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_chromium({"PATH": "", CHROMIUM_VARIABLE: str(program)}) == str(program)


def test_a_browser_that_does_not_start_is_reported():
    process = BrowserProcess(Reach({}))
    process._executable = "/bin/false"
    with pytest.raises(SetupError, match="/bin/false does not start"):
        process.start()
