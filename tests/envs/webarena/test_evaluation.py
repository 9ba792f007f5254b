"""WebArena's evaluators on small tasks with scores computed by hand.

tests/parity compares the scores of all 812 tasks with those of WebArena's own evaluators.
"""

import asyncio
from typing import Any

import pytest

from agentgym_envs.webarena.evaluation.evaluate import evaluate
from agentgym_envs.webarena.evaluation.functions import (
    WITHOUT_A_SITE,
    FunctionError,
    parse,
    reddit_get_post_url,
)
from agentgym_envs.webarena.evaluation.judge import JudgeError, JudgeMissing
from agentgym_envs.webarena.evaluation.page import PageError
from agentgym_envs.webarena.evaluation.verdict import Verdict
from agentgym_envs.webarena.tasks import (
    Answers,
    Evaluation,
    HtmlTarget,
    WebTask,
)
from tests.waiting import PATIENCE_S


class Site:
    """A page whose table maps (url, script) to the script's result; script "" gives the document."""

    def __init__(self, url: str, pages: dict[tuple[str, str], Any] | None = None):
        self.url = url
        self.pages = pages or {}
        self.visited: list[str] = []
        self.ran: list[str] = []

    async def content(self) -> str:
        return self.pages[self.url, ""]

    async def evaluate(self, script: str) -> Any:
        self.ran.append(script)
        try:
            return self.pages[self.url, script.removeprefix("() => ")]
        except KeyError:
            raise PageError(f"{script} raised") from None

    async def goto(self, url: str) -> None:
        if url.startswith("broken:"):
            raise PageError(f"no page {url}")
        self.visited.append(url)
        self.url = url


class Teacher:
    """A judge that accepts one fixed answer and records the questions."""

    def __init__(self, right: str):
        self.right = right
        self.asked: list[tuple[str, str, str, str]] = []

    async def same_answer(self, question: str, reference: str, answer: str) -> bool:
        self.asked.append(("answer", question, reference, answer))
        return answer == self.right

    async def same_reason(self, question: str, reference: str, answer: str) -> bool:
        self.asked.append(("reason", question, reference, answer))
        return answer == self.right


def task(*eval_types: str, **evaluation: Any) -> WebTask:
    return WebTask(
        task_id=1,
        sites=("reddit",),
        intent="Which tea?",
        start_urls=("http://site",),
        evaluation=Evaluation(eval_types, **evaluation),
    )


def verdict(
    of: WebTask, answer: str | None = "", page: Site | None = None, **arguments: Any
) -> Verdict:
    return asyncio.run(evaluate(of, answer, page or Site("http://site"), **arguments))


def score(of: WebTask, answer: str | None = "", page: Site | None = None, **rest: Any) -> float:
    return verdict(of, answer, page, **rest).score


@pytest.mark.parametrize(
    "answer, expected",
    [
        ("Green Tea", 1.0),
        ("  'green tea' ", 1.0),
        # WebArena removes quotes and spaces twice, so inner ones disappear too
        ("\"'green tea'\"", 1.0),
        ('"green tea', 0.0),
        ("green tea.", 0.0),
        (None, 0.0),
    ],
)
def test_an_exact_match_ignores_case_outer_spaces_and_quotes(answer: str | None, expected: float):
    exact = task("string_match", answers=Answers(exact_match="Green tea"))
    assert score(exact, answer) == expected


def test_every_part_of_an_answer_must_be_included():
    both = task("string_match", answers=Answers(must_include=("Green", "black")))
    # a reference that is part of a longer word also matches
    assert score(both, "greenish and blackest") == 1.0
    assert score(both, "green and red") == 0.0


@pytest.mark.parametrize(
    "answer, expected",
    [
        ("3", 1.0),
        ("There are 3 of them.", 1.0),
        ("there are 3.", 1.0),
        ("I found 3. 10 are new.", 1.0),  # the first dot ends a sentence
        # the answer is lower-cased first, so no sentence ends here and "3." is a word
        ("I found 3. Some are new.", 0.0),
        ("(3)", 1.0),
        ("it's 3's", 1.0),
        ("13", 0.0),
        ("3.5", 0.0),
        ("1,3", 0.0),
        ("v3", 0.0),
    ],
)
def test_a_single_character_must_be_a_separate_word(answer: str, expected: float):
    pytest.importorskip("nltk", reason='pip install -e ".[web]"')
    pytest.importorskip("punkt", reason='pip install -e ".[web]"')
    assert score(task("string_match", answers=Answers(must_include=("3",))), answer) == expected


def test_a_single_character_can_be_in_a_word_if_there_are_several_references():
    assert score(task("string_match", answers=Answers(must_include=("3", "5"))), "13 and 25") == 1.0


def test_a_judge_compares_free_answers_with_every_reference():
    free = task("string_match", answers=Answers(fuzzy_match=("calming", "green")))
    judge = Teacher("green stuff")
    assert score(free, "Green stuff", judge=judge) == 1.0
    assert judge.asked == [
        ("answer", "Which tea?", "calming", "green stuff"),
        ("answer", "Which tea?", "green", "green stuff"),
    ]
    assert score(free, "coffee", judge=judge) == 0.0


def test_a_free_answer_without_a_judge_is_an_error():
    free = task("string_match", answers=Answers(fuzzy_match=("calming",)))
    with pytest.raises(JudgeMissing, match="task 1"):
        verdict(free, "calming")


def test_a_judge_without_a_verdict_gives_no_score():
    class Silent(Teacher):
        async def same_answer(self, question: str, reference: str, answer: str) -> bool:
            raise JudgeError("no answer")

    with pytest.raises(JudgeError):
        verdict(task("string_match", answers=Answers(fuzzy_match=("x",))), "x", judge=Silent("x"))


def test_a_judge_is_not_asked_about_an_answer_that_already_failed():
    judge = Teacher("coffee")
    mixed = task("string_match", answers=Answers(must_include=("green",), fuzzy_match=("calm",)))
    assert score(mixed, "coffee", judge=judge) == 0.0
    assert judge.asked == []


def test_an_impossible_task_is_answered_by_na_or_its_reason():
    impossible = task("string_match", answers=Answers(not_possible=True), reason="sold out")
    judge = Teacher("there is none left")
    assert score(impossible, " n/a ", judge=judge) == 1.0
    assert judge.asked == []
    assert score(impossible, "There is none left", judge=judge) == 1.0
    assert judge.asked == [("reason", "Which tea?", "sold out", "there is none left")]


def test_without_a_judge_only_na_counts_for_an_impossible_task():
    impossible = task("string_match", answers=Answers(not_possible=True), reason="sold out")
    assert score(impossible, "N/A") == 1.0
    found = verdict(impossible, "sold out")
    assert found.score == 0.0
    assert found.parts[0].note == "no judge: only the literal N/A counts"


@pytest.mark.parametrize(
    "url, expected",
    [
        ("http://site/tea/1", 1.0),
        ("http://site/tea/1/", 1.0),
        ("https://site/tea/1/more?page=2#end", 1.0),  # the reference is a part of the URL
        # the query value of one of the references must match
        ("http://site/tea/2?sort=price", 0.0),
        ("http://site/tea/1?sort=name", 1.0),
        ("http://site/cart?next=http://site/tea/1", 0.0),
        ("http://site/tea", 0.0),
    ],
)
def test_the_last_address_must_match_a_reference(url: str, expected: float):
    references = ("http://site/tea/1",)
    if "sort" in url:
        references = ("http://site/tea/1?sort=name", "http://site/tea/2/")
    assert score(task("url_match", reference_urls=references), page=Site(url)) == expected


def test_a_query_value_of_any_alternative_is_accepted():
    either = task("url_match", reference_urls=("http://s/a?x=1", "http://s/b?x=2"))
    assert score(either, page=Site("http://s/a?x=2&y=3")) == 1.0
    assert score(either, page=Site("http://s/a?x=3")) == 0.0
    assert score(either, page=Site("http://s/a")) == 0.0


def html(*targets: HtmlTarget) -> WebTask:
    return task("program_html", targets=targets)


def test_a_document_must_contain_an_alternative_of_each_part():
    wants = html(HtmlTarget("last", "", must_include=("green |OR| black", "tea")))
    assert score(wants, page=Site("http://s", {("http://s", ""): "<b>Black</b> TEA"})) == 1.0
    assert score(wants, page=Site("http://s", {("http://s", ""): "<b>Green</b> pot"})) == 0.0


def test_a_located_text_can_require_an_exact_match():
    wants = html(HtmlTarget("last", "document.title", exact_match="tea & pots"))
    page = Site("http://s", {("http://s", "document.title"): "Tea &amp; pots"})
    assert score(wants, page=page) == 1.0
    page = Site("http://s", {("http://s", "document.title"): "Tea & pots!"})
    assert score(wants, page=page) == 0.0


def test_a_script_that_raises_gives_an_empty_text():
    assert score(html(HtmlTarget("last", "document.x.y", must_include=("a",)))) == 0.0
    assert score(html(HtmlTarget("last", "document.x.y", exact_match=""))) == 1.0


def test_values_that_are_not_text_are_compared_as_python_prints_them():
    page = Site("http://s", {("http://s", "document.x"): None, ("http://s", "document.y"): 3})
    assert score(html(HtmlTarget("last", "document.x", exact_match="none")), page=page) == 1.0
    assert score(html(HtmlTarget("last", "document.y", exact_match="3")), page=page) == 1.0


def test_preparation_scripts_run_first_and_can_fail():
    target = HtmlTarget(
        "last", "document.title", exact_match="tea", prep_actions=("open()", "more()")
    )
    page = Site("http://s", {("http://s", "document.title"): "tea"})
    assert score(html(target), page=page) == 1.0
    assert page.ran == ["() => open()", "() => document.title"]


def test_the_agents_last_page_is_checked_before_other_pages_are_opened():
    here = HtmlTarget("last", "", must_include=("here",))
    there = HtmlTarget("http://s/there", "", must_include=("there",))
    page = Site("http://s", {("http://s", ""): "here", ("http://s/there", ""): "there"})
    assert score(html(there, here), page=page) == 1.0
    assert page.visited == ["http://s/there"]


def test_the_address_checked_is_the_agents_even_after_pages_were_opened():
    both = task(
        "program_html",
        "url_match",
        targets=(HtmlTarget("http://s/there", "", must_include=("there",)),),
        reference_urls=("http://s/here",),
    )
    page = Site("http://s/here", {("http://s/there", ""): "there"})
    assert score(both, page=page) == 1.0


def test_the_score_is_a_product_that_stops_at_the_first_failed_part():
    all_three = task(
        "string_match",
        "url_match",
        "program_html",
        answers=Answers(exact_match="tea"),
        reference_urls=("http://s",),
        targets=(HtmlTarget("http://s/cart", "", must_include=("green", "red")),),
    )
    page = Site("http://s", {("http://s/cart", ""): "green"})
    found = verdict(all_three, "tea", page)
    assert found.score == 0.0
    assert [(part.check, part.wanted, part.score) for part in found.parts] == [
        ("string_match exact_match", "tea", 1.0),
        ("url_match path", "s", 1.0),
        ("program_html must_include", "green", 1.0),
        ("program_html must_include", "red", 0.0),
    ]
    page = Site("http://s", {("http://s/cart", ""): "green"})
    assert len(verdict(all_three, "coffee", page).parts) == 1
    assert page.visited == []


def test_an_address_of_the_task_that_cannot_be_opened_gives_no_score():
    with pytest.raises(PageError):
        verdict(html(HtmlTarget("broken:", "", must_include=("a",))))


def test_a_last_page_that_cannot_be_opened_scores_0():
    target = HtmlTarget("func:reddit_get_post_url('__last_url__')", "", must_include=("a",))
    assert score(html(target), page=Site("broken:")) == 0.0


def test_an_address_from_a_function_that_cannot_be_opened_gives_no_score():
    async def order() -> str:
        return "broken:"

    with pytest.raises(PageError):
        verdict(
            html(HtmlTarget("func:order()", "", must_include=("a",))), functions={"order": order}
        )


def test_a_page_that_is_still_loading_is_checked_again():
    class Slow(Site):
        looks = 0

        async def content(self) -> str:
            self.looks += 1
            return "done" if self.looks > 1 else "wait"

    wants = html(HtmlTarget("http://s/x", "", must_include=("done",)))
    assert score(wants, page=Slow("http://s")) == 0.0
    assert score(wants, page=Slow("http://s"), patience_seconds=PATIENCE_S) == 1.0


def test_functions_get_the_last_address_and_the_page():
    async def shout(page: Site, word: str, url: str) -> str:
        return f"{word.upper()} {url} {page.url}"

    page = Site("http://s/it's")
    target = HtmlTarget(
        "http://s/x",
        "func:shout(__page__, 'tea', '__last_url__')",
        must_include=("TEA http://s/it's http://s/x",),
    )
    assert score(html(target), page=page, functions={"shout": shout}) == 1.0


@pytest.mark.parametrize(
    "expression",
    [
        "func:__import__('os').system('x')",
        "func:a.b()",
        "func:a",
        "func:a(b)",
        "func:a(1)",
        "func:a(x='1')",
        "func:a('1', *b)",
        "func:a(",
    ],
)
def test_only_plain_calls_are_accepted(expression: str):
    with pytest.raises(FunctionError):
        parse(expression)


def test_the_error_for_an_unknown_function_names_it():
    target = HtmlTarget("func:shopping_get_latest_order_url()", "", must_include=("a",))
    with pytest.raises(FunctionError, match="no function 'shopping_get_latest_order_url'"):
        verdict(html(target), functions=WITHOUT_A_SITE)


@pytest.mark.parametrize(
    "url, post",
    [
        ("http://r/f/tea/12/a-title/-/comment/3?x=1", "http://r/f/tea/12/"),
        ("http://r/f/tea/12", "http://r/f/tea/12/"),
        ("http://r/f/tea", "http://r/f/tea"),
        ("http://r/user/tea/12/x", "http://r/user/tea/12/x"),
    ],
)
def test_the_address_of_a_post_is_extracted_from_a_longer_address(url: str, post: str):
    assert asyncio.run(reddit_get_post_url(url)) == post
