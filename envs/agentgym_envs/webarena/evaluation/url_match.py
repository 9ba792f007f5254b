"""Evaluator `url_match`: checks the address of the agent's last page."""

import collections
import urllib.parse
from collections.abc import Iterator

from agentgym_envs.webarena.evaluation.verdict import Part
from agentgym_envs.webarena.tasks import ALTERNATIVES, URL_MATCH, WebTask


def url_match(task: WebTask, url: str) -> Iterator[Part]:
    """Yields the checks of the last page's address, one by one.

    Host and path of one reference must be part of the page's host and path, or equal to them if the
    task says so. Each query key of a reference must be in the page's query, with a value that one
    of the references gives for that key. Other keys of the page's query do not matter.
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
    """Splits an address, without slashes at its end, into host with path and query."""
    parts = urllib.parse.urlparse(url.rstrip("/"))
    return parts.netloc + parts.path, urllib.parse.parse_qs(parts.query)
