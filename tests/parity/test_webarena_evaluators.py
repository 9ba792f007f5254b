"""Scores of this project's evaluators, which must equal those of libwebarena on all 812 tasks.

Answers and pages of the episodes are invented.

    python -m venv V
    V/bin/pip install -e "envs[web]" pytest
    V/bin/pip install --no-deps libwebarena==0.0.5
    V/bin/pip install beartype==0.12.0 gymnasium numpy Pillow requests
    V/bin/python -m pytest tests/parity/test_webarena_evaluators.py --noconftest \\
        -p no:cacheprovider -o addopts= --log-cli-level=INFO

(The extra `web_oracle` installs libwebarena with all its dependencies, 612 MB.) The tests need
neither a network nor a browser. If libwebarena raises an error, this project's evaluator must raise
an error or return 0; these comparisons are counted separately.
"""

import asyncio
import collections
import importlib.util
import json
import logging
import pathlib
import sys
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
from tests.fake_server import Request, serving  # noqa: E402

WORLDS = 12  # number of invented site states for each task with program_html
ORDERS = [{"increment_id": "000000042"}]


class Shop:
    """State of an invented shop, as far as the tasks query it through Magento's REST interface.

    Attributes:
      wanted: Author and rating that a task requires of the latest review of a product.
      state: 0 if the latest review is the required one, 1 if it is another, 2 if there is none.
    """

    wanted: dict[str, tuple[str, int]] = {}
    state = 0


def shop(request: Request) -> tuple[int, Any]:
    """Answers a request for a token, for orders or for reviews."""
    if request.method == "POST":
        return 200, "token"
    if "/orders" in request.path:
        return 200, {"items": ORDERS}
    author, rating = Shop.wanted[request.path.split("/")[-2]]
    reviews = [
        {"nickname": name, "ratings": [{"rating_name": "Rating", "percent": percent}]}
        for name, percent in (("Ann", 0), (author, rating))
    ]
    return 200, [reviews, reviews[::-1], []][Shop.state]


class OurPage:
    """An invented page for this project's evaluators; its contents equal those of `OraclePage`."""

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
    """A judge whose verdicts equal those of the judge on libwebarena's side."""

    async def same_answer(self, question: str, reference: str, answer: str) -> bool:
        return made_up_verdict(question, reference, answer)

    async def same_reason(self, question: str, reference: str, answer: str) -> bool:
        return made_up_verdict(question, reference, answer)


class Both:
    """The evaluators of libwebarena and of this project.

    Attributes:
      tasks: Tasks in this project's format, with the addresses of this run.
      counts: Number of comparisons by type and score.
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
        """Compares the scores of both evaluators for one episode; a difference fails the test."""
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
        """Stores the author and rating that a task requires of each product's latest review."""
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
    with serving(shop) as server:
        yield Both(server.url, tmp_path_factory.mktemp("oracle"))


def answers(task: WebTask) -> list[str]:
    """Returns right, nearly right and wrong answers."""
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
    """Returns addresses of right, nearly right and wrong last pages."""
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
    """Returns texts that the pages of an invented world may contain."""
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
    """Returns a world in which all scripts and documents have the same value."""
    return World([world], 0)


def test_answers_get_equal_scores(both: Both):
    before = sum(both.counts.values())
    nothing = single("")
    for task in both.tasks:
        if STRING_MATCH in task.evaluation.eval_types:
            urls = task.evaluation.reference_urls or ("http://else.test",)
            for answer in answers(task):
                both.compare(task, answer, nothing, urls[0])
    report(both, "string_match", before)


def test_addresses_get_equal_scores(both: Both):
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


def test_pages_get_equal_scores(both: Both):
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
                # Every second world has only texts of the task; otherwise almost no score would be 1.
                fitting = possible[9:] if seed % 2 else possible
                world = World(fitting, (task.task_id, seed))
                both.compare(task, "", world, urls[number(seed, task.task_id) % len(urls)])
            for url in urls:
                both.compare(task, "", single(possible[9]), url)
    report(both, "program_html", before)


def report(both: Both, what: str, before: int) -> None:
    """Logs the number of comparisons since `before`, and all counts."""
    total = sum(both.counts.values())
    logging.info("%s: %d comparisons", what, total - before)
    logging.info("so far: %s", json.dumps(dict(sorted(both.counts.items()))))
    assert total - before > 500
