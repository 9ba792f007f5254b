"""`url_match`: did the agent leave the right page?"""

import collections
import urllib.parse
from collections.abc import Iterator

from agentgym_envs.webarena.evaluation.verdict import Part
from agentgym_envs.webarena.tasks import ALTERNATIVES, URL_MATCH, WebTask


def url_match(task: WebTask, url: str) -> Iterator[Part]:
    """The checks of the last page's address, one by one.

    Host and path of one of the references must be part of host and path of the page, or be the same if
    the task says so. Of the query,
    each key that any reference has must have a value that some reference gives it; what else is
    in the page's query does not matter.
    """
    bases = []
    wanted: dict[str, set[str]] = collections.defaultdict(set)
    for reference in task.evaluation.reference_urls:
        base, query = _split(reference)
        bases.append(base)
        for key in query:
            wanted[key].update(query[key])
    page_base, page_query = _split(url)
    same = task.evaluation.same_url
    yield Part(
        f"{URL_MATCH} path",
        ALTERNATIVES.join(bases),
        float(any(_is_same(base, page_base) if same else base in page_base for base in bases)),
        page_base,
    )
    for key, values in wanted.items():
        found = page_query.get(key, [])
        yield Part(
            f"{URL_MATCH} query {key}",
            ALTERNATIVES.join(sorted(values)),
            float(any(value in found for value in values)),
            ", ".join(found),
        )


def _is_same(base: str, page_base: str) -> bool:
    return base.rstrip("/") == page_base.rstrip("/")


def _split(url: str) -> tuple[str, dict[str, list[str]]]:
    """Host with path, and query, of an address without slashes at its end."""
    parts = urllib.parse.urlparse(url.rstrip("/"))
    return parts.netloc + parts.path, urllib.parse.parse_qs(parts.query)
