"""The evaluators of WebArena on real pages in the tabs of an episode."""

from collections.abc import Iterator

import pytest

pytest.importorskip("playwright", reason='pip install -e ".[web]"')


from agentgym_envs.base.environment import SetupError  # noqa: E402
from agentgym_envs.webarena.browser.launch import require_browser  # noqa: E402
from agentgym_envs.webarena.browser.process import BrowserProcess  # noqa: E402
from agentgym_envs.webarena.browser.reach import Reach, server_of  # noqa: E402
from agentgym_envs.webarena.browser.session import SessionPage  # noqa: E402
from agentgym_envs.webarena.browser.start import Start  # noqa: E402
from agentgym_envs.webarena.evaluation.evaluate import evaluate  # noqa: E402
from agentgym_envs.webarena.evaluation.page import PageError  # noqa: E402
from agentgym_envs.webarena.tasks import Evaluation, HtmlTarget, WebTask  # noqa: E402
from tests.fake_server import Request, serving  # noqa: E402
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

try:
    require_browser()
except SetupError as error:
    pytest.skip(str(error), allow_module_level=True)

SECONDS = 60.0
PAGES = {
    "/members": """<table>
      <tr><td data-label="Account"><span class="gl-avatar-labeled-sublabel">@ann</span></td>
          <td class="col-max-role"><span>Owner</span></td></tr>
      <tr><td data-label="Account"><span class="gl-avatar-labeled-sublabel">@ann'b</span></td>
          <td class="col-max-role"><span>Guest</span></td></tr></table>""",
    "/f/tea/12/title": '<p class="comment">not the post</p>',
    "/f/tea/12/": "<ul><li>green &amp; black</li><li>Say &quot;tea&quot;</li></ul>",
    "/form": """<button onclick="document.title = 'opened'">Open</button>
      <input name="price" value="3.50"><input type="checkbox" checked>""",
    "/slow": """<p id="p">wait</p>
      <script>setTimeout(() => { p.textContent = 'done' }, 1000)</script>""",
}


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    def answer(request: Request) -> tuple[int, bytes]:
        path = request.path
        content = PAGES.get(path, "nothing")
        page = f"<!doctype html><html><title>{path}</title><body>{content}</body></html>"
        return 200, page.encode()

    with serving(answer) as server:
        yield server.url


@pytest.fixture(scope="module")
def process(site: str) -> Iterator[BrowserProcess]:
    started = BrowserProcess.get(Reach({server_of(site): server_of(site)}))
    yield started
    started.stop()


def score(
    process: BrowserProcess, last: str, *targets: HtmlTarget, patience_seconds: float = 0.0
) -> tuple[float, str]:
    """Returns the score of an episode that ends at the page `last`, and the final URL of its tab."""
    task = WebTask(
        1, ("gitlab",), "Do it.", (last,), Evaluation(("program_html",), targets=targets)
    )

    async def work() -> tuple[float, str]:
        session = await process.open(Start(urls=(last,)))
        try:
            page = SessionPage(session)
            verdict = await evaluate(task, "", page, patience_seconds=patience_seconds)
            return verdict.score, session.tab.page.url
        finally:
            await session.close()

    return process.run(work(), SECONDS)


@pytest.mark.parametrize(
    "account, role, expected",
    [("ann", "owner", 1.0), ("ann", "guest", 0.0), ("ann'b", "guest", 1.0), ("bob", "", 1.0)],
)
def test_the_role_of_an_account_is_read_from_the_members_page(
    process: BrowserProcess, site: str, account: str, role: str, expected: float
):
    locator = f'func:gitlab_get_project_memeber_role(__page__, "{account}")'
    target = HtmlTarget(f"{site}/members", locator, exact_match=role)
    assert score(process, f"{site}/", target)[0] == expected


def test_the_post_behind_the_last_page_is_opened_in_a_separate_tab(
    process: BrowserProcess, site: str
):
    last = f"{site}/f/tea/12/title"
    url = "func:reddit_get_post_url('__last_url__')"
    script = "[...document.querySelectorAll('li')].map(li => li.outerText).join('; ')"
    items = HtmlTarget(url, script, exact_match='green & black; say "tea"')
    document = HtmlTarget(url, "", must_include=("green & black |OR| x", 'say "tea"'))
    assert score(process, last, items, document) == (1.0, last)


def test_scripts_see_the_page_as_the_agent_left_it(process: BrowserProcess, site: str):
    price = HtmlTarget("last", "document.querySelector('[name=price]').value", exact_match="3.50")
    checked = HtmlTarget(
        "last", "document.querySelector('[type=checkbox]').checked", exact_match="true"
    )
    opened = HtmlTarget(
        "last",
        "document.title",
        exact_match="opened",
        prep_actions=("document.querySelector('button').click()",),
    )
    missing = HtmlTarget("last", "document.querySelector('.none').outerText", exact_match="")
    targets = (price, opened, missing)
    assert score(process, f"{site}/form", *targets)[0] == 1.0
    # A boolean is compared as Python prints it ("True"); the comparison ignores case.
    assert score(process, f"{site}/form", checked)[0] == 1.0


def test_a_page_that_loads_late_is_waited_for(process: BrowserProcess, site: str):
    target = HtmlTarget(
        f"{site}/slow", "document.querySelector('#p').outerText", exact_match="done"
    )
    assert score(process, f"{site}/", target, patience_seconds=PATIENCE_S)[0] == 1.0


def test_an_unreachable_site_gives_no_score(process: BrowserProcess, site: str):
    with pytest.raises(PageError):
        score(process, f"{site}/", HtmlTarget("http://127.0.0.1:9/", "", must_include=("a",)))
