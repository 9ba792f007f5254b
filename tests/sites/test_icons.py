"""Labels of icons on the pages of the Django sites."""

import pytest

pytest.importorskip("django")

from agentgym_sites.icons import label_icons  # noqa: E402


def test_a_link_that_contains_only_an_icon_gets_a_label():
    named = label_icons('<a href="/search/"><i class="fa fa-search"></i></a>')
    assert named == (
        '<a href="/search/"><i role="img" aria-label="Search" class="fa fa-search"></i></a>'
    )


def test_an_icon_in_a_link_with_a_title_is_hidden():
    page = '<a title="Bold"> <i class="fa fa-bold"></i> </a>'
    assert label_icons(page) == (
        '<a title="Bold"> <i aria-hidden="true" class="fa fa-bold"></i> </a>'
    )


def test_an_icon_next_to_a_text_is_hidden():
    for page in (
        '<a><i class="fa fa-heart"></i> like (3)</a>',
        '<a>All categories <i class="fa fa-chevron-right"></i></a>',
        '<a>tiny_fox</a><i class="fa fa-chevron-right"></i></li>',
    ):
        assert 'aria-hidden="true"' in label_icons(page)
        assert "aria-label" not in label_icons(page)


def test_the_first_star_is_labelled_with_the_rating():
    stars = '<i class="fas fa-star"></i>' * 5
    page = label_icons(f'<p class="star-rating Four">\n{stars}</p>')
    assert page.count('aria-label="Four of five stars"') == 1
    assert page.count('aria-hidden="true"') == 4
    heading = label_icons(f'<h3 class="star-rating Zero"><span>{stars}</span></h3>')
    assert 'aria-label="No rating"' in heading
