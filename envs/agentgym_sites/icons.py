"""Gives names to the icons of Django sites, which are letters of an icon font.

Chromium's accessibility tree shows an icon as a private-use character, so a link that has only an
icon has no readable name.
"""

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

# Icon -> label, for icons that can be the whole content of a link.
_LABELS = {
    "search": "Search",
    "bell": "Notifications",
    "chevron-left": "Previous page",
    "chevron-right": "Next page",
    "times": "Remove",
}
# Matches the first of five stars, whose colours show a rating.
_STARS = re.compile(
    r'(class="star-rating (\w+)"[^>]*>\s*(?:<span>\s*)?)<i class="fas fa-star"></i>'
)
_ICON = re.compile(
    r'(?P<opens>>\s*)?<i class="(?P<classes>fa[srb]? fa-(?P<name>[\w-]+)[^"]*)"'
    r"(?P<rest>[^>]*)></i>(?P<closes>\s*</a>)?"
)


def label_icons(html: str) -> str:
    """Returns a page whose icons have a name or are absent from the accessibility tree.

    A link that contains only an icon of `_LABELS` gets the icon's label. Other icons are hidden, so
    their links are named by the text or the title. The first star of a rating gets the rating.
    """
    html = _STARS.sub(_rating, html)
    return _ICON.sub(_labelled, html)


def _rating(match: re.Match[str]) -> str:
    stars = match[2].lower()
    label = "No rating" if stars == "zero" else f"{stars} of five stars"
    return f'{match[1]}<i role="img" aria-label="{label.capitalize()}" class="fas fa-star"></i>'


def _labelled(match: re.Match[str]) -> str:
    opens, closes = match["opens"] or "", match["closes"] or ""
    label = _LABELS.get(match["name"]) if opens and closes else None
    text = 'aria-hidden="true"' if label is None else f'role="img" aria-label="{label}"'
    return f'{opens}<i {text} class="{match["classes"]}"{match["rest"]}></i>{closes}'


class IconLabels:
    """Django middleware that labels the icons of every page."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]):
        """Stores the function that answers requests."""
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Returns the response to a request, with labelled icons."""
        response = self._get_response(request)
        if not response.streaming and response.get("Content-Type", "").startswith("text/html"):
            response.content = label_icons(response.content.decode()).encode()
            if response.has_header("Content-Length"):
                response["Content-Length"] = str(len(response.content))
        return response
