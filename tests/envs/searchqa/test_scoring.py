"""Scoring of answers (normalisation, exact match and F1), reward shaping and parsing of actions."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa import scoring, texts
from agentgym_envs.searchqa.rewards import Shaping

ANSWERS = st.text(alphabet=string.ascii_letters + string.digits + string.punctuation + " \tüé")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Beatles!", "beatles"),
        ("a an the", ""),
        ("Theatre", "theatre"),
        ("U.S.A.", "usa"),
        (" 1,234.5 ", "12345"),
        ("Côte d'Ivoire", "côte divoire"),
        ("an-apple", "anapple"),  # punctuation is removed first, as in SQuAD's own script
    ],
)
def test_normalisation_gives_the_expected_texts(text, expected):
    assert scoring.normalize(text) == expected


@given(ANSWERS)
def test_normalisation_is_idempotent(text):
    once = scoring.normalize(text)
    assert scoring.normalize(once) == once
    assert once == once.strip() and "  " not in once


@given(ANSWERS)
def test_exact_match_ignores_case_punctuation_articles_and_spaces(text):
    assert scoring.exact_match(f"  the {text.upper()} !", [text.lower()]) == (
        scoring.normalize(text.upper()) == scoring.normalize(text.lower())
    )
    assert scoring.exact_match(f"The {text}.", ["something else", text])


@pytest.mark.parametrize(
    ("answer", "golden", "is_right"),
    [
        ("(a)", "A", True),
        ("", "A", False),
        ("the", "A", False),
        ("the the", "The The", True),
        ("", "The The", False),
        (" ? ", "?", True),
        ("-", "+", False),
        ("The U.S.A.", "usa", True),
        ("", "usa", False),
    ],
)
def test_an_answer_without_words_equals_only_itself(answer, golden, is_right):
    assert scoring.is_right(answer, ["none", golden]) == is_right


@given(ANSWERS, st.lists(ANSWERS, max_size=3))
def test_f1_is_between_zero_and_one_and_is_one_for_an_exact_match(answer, golden):
    score = scoring.f1(answer, golden)
    assert 0.0 <= score <= 1.0
    if scoring.exact_match(answer, golden):
        assert score == 1.0


@given(ANSWERS, ANSWERS)
def test_f1_is_symmetric_and_zero_without_a_common_word(first, second):
    score = scoring.f1(first, [second])
    assert score == scoring.f1(second, [first])
    words = [set(scoring.normalize(text).split()) for text in (first, second)]
    assert (score > 0) == bool(words[0] & words[1] or not (words[0] or words[1]))


def test_f1_matches_hand_computed_values():
    assert scoring.f1("Mount Kosciuszko in Australia", ["Mount Kosciuszko"]) == pytest.approx(2 / 3)
    assert scoring.f1("new new york", ["new york", "york"]) == pytest.approx(0.8)
    assert scoring.f1("", ["x"]) == 0.0 and scoring.f1("x", []) == 0.0
    assert not scoring.exact_match("x", [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<search> a b </search>", ("search", "a b", "")),
        ("x<answer>\nParis\n</answer> y", ("answer", "Paris", "Paris")),
        ("<search>a</search><answer>b</answer>", ("search", "a", "b")),
        ("<answer>a</answer><answer> b </answer>", ("answer", "a", "b")),
        ("<answer>a</search></answer>", ("answer", "a</search>", "a</search>")),
        ("<search></search>", ("search", "", "")),
    ],
)
def test_the_first_search_or_answer_of_a_text_is_the_action(text, expected):
    found = texts.read_action(text)
    assert (found.kind, found.text, found.last_answer) == expected


@pytest.mark.parametrize(
    "text", ["", "Paris", "<answer>Paris", "<SEARCH>a</SEARCH>", "<search>a</answer>"]
)
def test_a_text_without_a_closed_tag_is_not_an_action(text):
    assert texts.read_action(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>x</think><search>a</search>", True),
        (" <think>\nx\n</think>\n<answer>a b</answer>\n", True),
        ("<search>a</search>", False),
        ("<think>x</think><search>a</search><answer>b</answer>", False),
        ("<think>x</think> so <search>a</search>", False),
        ("<think>x</think><search></search>", False),
        ("<think>x<think></think><search>a</search>", False),
        ("<think>x</think><information>y</information><answer>a</answer>", False),
        ("<think>x</think><answer>a</search>", False),
    ],
)
def test_a_turn_is_well_formed_if_it_is_a_thought_and_one_action(text, expected):
    assert texts.is_well_formed(text) is expected


def test_without_shaping_the_score_is_one_or_zero():
    plain = Shaping()
    for form in (True, False):
        for searches in (0, 50):
            assert plain.score(is_right=True, is_well_formed=form, searches=searches) == 1.0
            assert plain.score(is_right=False, is_well_formed=form, searches=searches) == 0.0
    assert plain.least_right == 1.0 and str(plain) == ""


def test_shaping_matches_hand_computed_values():
    shaping = Shaping(format_score=0.2, search_cost=0.1, free_searches=2)
    assert shaping.score(is_right=True, is_well_formed=True, searches=2) == 1.0
    assert shaping.score(is_right=True, is_well_formed=True, searches=4) == pytest.approx(0.8)
    assert shaping.score(is_right=True, is_well_formed=False, searches=40) == pytest.approx(0.3)
    assert shaping.score(is_right=False, is_well_formed=True, searches=4) == 0.2
    assert shaping.score(is_right=False, is_well_formed=False, searches=0) == 0.0
    assert shaping.least_right == pytest.approx(0.3)
    assert str(shaping) == "-format0.2-cost0.1after2"


@given(
    st.floats(0, 0.2499),
    st.floats(0, 0.5),
    st.integers(0, 5),
    st.tuples(st.booleans(), st.booleans()),
    st.tuples(st.integers(0, 50), st.integers(0, 50)),
)
def test_every_correct_answer_scores_more_than_any_wrong_answer(form, cost, free, formed, searches):
    shaping = Shaping(form, cost, free)
    right = shaping.score(is_right=True, is_well_formed=formed[0], searches=searches[0])
    wrong = shaping.score(is_right=False, is_well_formed=formed[1], searches=searches[1])
    assert wrong < shaping.least_right <= right and right <= 1.0


@pytest.mark.parametrize(
    "options", [{"format_score": 0.25}, {"search_cost": 0.6}, {"free_searches": -1}]
)
def test_shaping_that_could_prefer_a_wrong_answer_is_refused(options):
    with pytest.raises(SetupError):
        Shaping(**options)
