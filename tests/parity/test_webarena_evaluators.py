"""Our evaluators and libwebarena's give the same scores on all 812 tasks, with made-up answers and pages.

    python -m venv V
    V/bin/pip install -e "envs[web]" pytest
    V/bin/pip install --no-deps libwebarena==0.0.5
    V/bin/pip install beartype==0.12.0 gymnasium numpy Pillow requests
    V/bin/python -m pytest tests/parity/test_webarena_evaluators.py --noconftest \\
        -p no:cacheprovider -o addopts= --log-cli-level=INFO

(The extra `web_oracle` installs libwebarena with all that it names, 612 MB.) No network, no browser.
Where libwebarena raises, ours must raise or say 0; such cases are counted by themselves.
"""

import asyncio
import collections
import http.server
import importlib.util
import json
import logging
import pathlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("webarena") is None, reason="pip install libwebarena==0.0.5"
)

from webarena_oracle import Broken, OraclePage, World, load, made_up_verdict, number  # noqa: E402

from agentgym_envs.webarena.evaluation.evaluate import evaluate  # noqa: E402
from agentgym_envs.webarena.evaluation.functions import WITHOUT_A_SITE  # noqa: E402
from agentgym_envs.webarena.evaluation.magento import Magento  # noqa: E402
from agentgym_envs.webarena.evaluation.page import PageError  # noqa: E402
from agentgym_envs.webarena.task_file import find_task_file, load_tasks  # noqa: E402
from agentgym_envs.webarena.tasks import PROGRAM_HTML, STRING_MATCH, URL_MATCH, WebTask  # noqa: E402
from agentgym_envs.webarena.urls import SITES, SiteUrls  # noqa: E402

WORLDS = 12  # made-up states of the sites for each task with program_html
ORDERS = [{"increment_id": "000000042"}]


class Shop(http.server.BaseHTTPRequestHandler):
    """Magento's REST interface, as far as the tasks ask it.

    Attributes:
      wanted: product -> author and rating that the tasks want of its latest review.
      state: 0 the latest review is the wanted one, 1 it is another, 2 there is none.
    """

    wanted: dict[str, tuple[str, int]] = {}
    state = 0

    def do_GET(self) -> None:  # noqa: N802
        """Orders and reviews."""
        if "/orders" in self.path:
            self._answer({"items": ORDERS})
            return
        author, rating = self.wanted[self.path.split("/")[-2]]
        reviews = [
            {"nickname": name, "ratings": [{"rating_name": "Rating", "percent": percent}]}
            for name, percent in (("Ann", 0), (author, rating))
        ]
        self._answer([reviews, reviews[::-1], []][self.state])

    def do_POST(self) -> None:  # noqa: N802
        """A token."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer("token")

    def _answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class OurPage:
    """The same made-up page as `OraclePage`, for our evaluators."""

    def __init__(self, world: World, url: str):
        self._world = world
        self.url = url

    async def content(self) -> str:
        return self._world.content(self.url)

    async def evaluate(self, script: str) -> Any:
        try:
            if "td.col-max-role span" in script:
                return self._world.role(self.url)
            return self._world.script(self.url, script)
        except Broken as error:
            raise PageError("broken") from error

    async def goto(self, url: str) -> None:
        self.url = url


class MadeUpJudge:
    """The judge that the other side has, too."""

    async def same_answer(self, question: str, reference: str, answer: str) -> bool:
        return made_up_verdict(question, reference, answer)

    async def same_reason(self, question: str, reference: str, answer: str) -> bool:
        return made_up_verdict(question, reference, answer)


class Both:
    """libwebarena and ours, side by side.

    Attributes:
      tasks: ours, at the addresses of this run.
      counts: what was compared.
    """

    def __init__(self, shop: str, folder: pathlib.Path):
        bases = {site: f"http://{site.replace('_', '-')}.test:7770" for site in SITES}
        bases |= {"shopping": shop, "shopping_admin": f"{shop}/admin"}
        self._oracle = load(bases, folder / "nltk_data")
        self._folder = folder
        path = find_task_file()
        self.tasks = [task.at(SiteUrls(bases)) for task in load_tasks(path)]
        text = path.read_text(encoding="utf-8")
        for site, name in SITES.items():
            text = text.replace(name.placeholder, bases[site])
        for row in json.loads(text):
            self._learn_reviews(row["eval"]["program_html"])
            (folder / f"{row['task_id']}.json").write_text(json.dumps(row), encoding="utf-8")
        self._functions = {**WITHOUT_A_SITE, **Magento(shop, "admin", "secret").functions()}
        self.counts: collections.Counter[str] = collections.Counter()

    def compare(self, task: WebTask, answer: str, world: World, url: str) -> None:
        """One comparison; a difference fails the test."""
        Shop.state = number(answer, world.seed, url) % 3
        ours = self._ours(task, answer, OurPage(world, url))
        theirs = self._theirs(task, answer, OraclePage(world, url))
        kind = "+".join(task.evaluation.eval_types)
        if theirs is None:
            self.counts[f"{kind}: libwebarena raised"] += 1
            assert ours == 0.0, (task.task_id, answer, url)
            return
        self.counts[f"{kind}: score {theirs:g}"] += 1
        assert ours == theirs, (task.task_id, answer, url, ours, theirs)

    def _learn_reviews(self, targets: list[dict[str, Any]]) -> None:
        """What the shop has to answer for a task to be done."""
        looks = {
            t["locator"]: t["required_contents"]["must_include"][0]
            for t in targets
            if "sku_latest" in t["locator"]
        }
        for locator, author in looks.items():
            if "author" in locator:
                product = locator.split("'")[1]
                rating = looks[locator.replace("author", "rating")]
                Shop.wanted[product] = (author, int(rating))

    def _ours(self, task: WebTask, answer: str, page: OurPage) -> float:
        judge = MadeUpJudge()
        return asyncio.run(evaluate(task, answer, page, judge, self._functions)).score

    def _theirs(self, task: WebTask, answer: str, page: OraclePage) -> float | None:
        config = self._folder / f"{task.task_id}.json"
        wrapped = self._oracle.PseudoPage(page, page.url)
        try:
            return self._oracle.evaluator_router(config)(
                [{"answer": answer}], config, wrapped, None
            )
        except (KeyError, AssertionError):
            return None


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Both(f"http://127.0.0.1:{server.server_port}", tmp_path_factory.mktemp("oracle"))
        server.shutdown()
        thread.join()


def answers(task: WebTask) -> list[str]:
    """Right, nearly right and wrong answers."""
    wanted = task.evaluation.answers
    assert wanted is not None
    exact = [wanted.exact_match] if wanted.exact_match is not None else []
    words = [*exact, *(wanted.must_include or ()), *(wanted.fuzzy_match or ())] or ["N/A"]
    everything = ", ".join(words)
    return [
        *(
            "",
            " ",
            "'",
            '"',
            '""',
            "N/A",
            " 'n/a' ",
            "N/A.",
            "none of these, 0 or 1",
            "10, 21 and 35",
        ),
        *(
            everything,
            everything.upper(),
            f"  {everything}\n",
            f"'{everything}'",
            f"\"'{everything}'\"",
        ),
        *(
            f'"{everything}',
            f"The answer is {everything}.",
            f"{everything}. it is so. Really.",
            "\n".join(words),
        ),
        *(
            f"it's {everything}'s",
            f"({everything})",
            f"1{everything}",
            f"{everything}0",
            f"{everything},{everything}",
        ),
        *(
            f"about {everything}. There are more",
            f"#{everything}; ${everything}%",
            f"{everything}... or so?",
        ),
        *(
            f"{everything}. 10 are new. {everything[1:]}? (x.)",
            f"no. {everything} - {everything}--",
            ", ".join(words[:-1]),
            words[-1][1:],
        ),
        *(
            f"<b>{everything}</b>",
            everything.replace(" ", "  "),
            f"“{everything}”",
            f"{everything}/5 {everything}:3",
        ),
    ]


def addresses(task: WebTask) -> list[str]:
    """Right, nearly right and wrong last pages."""
    references = task.evaluation.reference_urls
    first, last = references[0], references[-1]
    bare = first.split("?")[0]
    return [
        *(
            first,
            last,
            f"{first}/",
            f"{first}//",
            f"{first}/more",
            f"{first}#part",
            bare,
            f"{bare}/?page=2",
        ),
        *(
            first.replace("=", "=9"),
            f"{first}&other=1",
            f"{first}?a=b&a=c",
            first.upper(),
            first[:-1],
        ),
        *(
            first.replace("http://", "https://"),
            f"http://else.test/?next={first}",
            f"http://else.test/{first}",
        ),
        *(
            "about:blank",
            "",
            "chrome-error://chromewebdata/",
            first.replace("%20", "+"),
            bare + "?" * 2,
        ),
    ]


def texts(task: WebTask) -> list[Any]:
    """What pages of a made-up world contain."""
    wanted: list[str] = []
    for target in task.evaluation.targets:
        wanted += [] if target.exact_match is None else [target.exact_match]
        wanted += [a for w in target.must_include or () for a in w.split(" |OR| ")[:1]]
        wanted += [w.split(" |OR| ")[-1] for w in target.must_include or ()]
    full = " ".join(wanted)
    escaped = full.replace("&", "&amp;").replace('"', "&quot;").replace("'", "&#39;")
    odd = ["", None, Broken, 7, True, ["a", 1], wanted[0], wanted[-1], full.swapcase()]
    return odd + [full, full, f" '{wanted[0]}' ", f"<p>{escaped}</p>", escaped, f"{full} and more"]


def single(world: Any) -> World:
    """A world in which everything is the same."""
    return World([world], 0)


def test_answers_are_scored_alike(both: Both):
    before = sum(both.counts.values())
    nothing = single("")
    for task in both.tasks:
        if STRING_MATCH in task.evaluation.eval_types:
            urls = task.evaluation.reference_urls or ("http://else.test",)
            for answer in answers(task):
                both.compare(task, answer, nothing, urls[0])
    report(both, "string_match", before)


def test_addresses_are_scored_alike(both: Both):
    before = sum(both.counts.values())
    for task in both.tasks:
        if URL_MATCH in task.evaluation.eval_types:
            good = (
                single(" ".join(t for t in texts(task) if isinstance(t, str)))
                if task.evaluation.targets
                else single("")
            )
            answer = answers(task)[10] if task.evaluation.answers else ""
            for url in addresses(task):
                both.compare(task, answer, good, url)
    report(both, "url_match", before)


def test_pages_are_scored_alike(both: Both):
    before = sum(both.counts.values())
    for task in both.tasks:
        if PROGRAM_HTML in task.evaluation.eval_types:
            urls = [*task.evaluation.reference_urls, *task.start_urls]
            urls += [
                f"{task.start_urls[0]}/f/books/12/title/-/comment/3",
                "http://else.test/f/a",
                "about:blank",
            ]
            for seed in range(WORLDS):
                possible = texts(task)
                fitting = possible[9:] if seed % 2 else possible  # else hardly any score is 1
                world = World(fitting, (task.task_id, seed))
                both.compare(task, "", world, urls[number(seed, task.task_id) % len(urls)])
            for url in urls:
                both.compare(task, "", single(possible[9]), url)
    report(both, "program_html", before)


def report(both: Both, what: str, before: int) -> None:
    """Counts for the record."""
    total = sum(both.counts.values())
    logging.info("%s: %d comparisons", what, total - before)
    logging.info("so far: %s", json.dumps(dict(sorted(both.counts.items()))))
    assert total - before > 500
