"""The documentation as a site: `mkdocs build --strict` and every link of the result."""

import html.parser
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

import pytest

pytest.importorskip("material", reason='the site needs pip install -e ".[docs]"')
pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parents[1]


class Links(html.parser.HTMLParser):
    """Links, anchors and loaded files of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.loaded = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[key] for key in ("id", "name") if values.get(key)}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in ("script", "img") and values.get("src"):
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "preload", "icon"):
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Returns the parsed pages of the site by path."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    pages = folder.rglob("*.html")
    return {page: Links(page.read_text(encoding="utf-8")) for page in pages}


def test_every_page_of_docs_and_every_experiment_is_in_the_navigation(site):
    (index,) = (page for page in site if page.name == "index.html" and len(page.parts) == min(len(p.parts) for p in site))  # fmt: skip
    found = set(site[index].links)
    pages = {p.stem for p in (ROOT / "docs").glob("*.md")} - {"README"}
    assert {f"{name}.html" for name in pages} <= found
    experiments = {p.parent.name for p in (ROOT / "experiments").glob("*/README.md")}
    assert {f"repository/experiments/{name}/index.html" for name in experiments} <= found
    assert "reference/agentgym_jax.algorithms.html" in found


def test_every_link_of_the_site_leads_to_a_page_and_an_anchor(site):
    broken = []
    for page, parsed in site.items():
        for link in [*parsed.links, *parsed.loaded]:
            path, _, anchor = urllib.parse.unquote(link).partition("#")
            if re.match(r"[a-z]+:", link) or page.name == "404.html":
                continue
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            if target.is_dir():
                target /= "index.html"
            known = site[target].anchors if target in site else {anchor}
            if not target.exists() or (anchor and anchor not in known):
                broken.append((page.name, link))
    assert not broken


def test_pages_load_nothing_from_other_servers(site):
    loaded = {link for parsed in site.values() for link in parsed.loaded}
    assert not [link for link in loaded if re.match(r"(?:https?:)?//", link)]


def test_the_reference_has_signatures_and_descriptions_of_arguments(site):
    (page,) = (p for p in site if p.name == "agentgym_jax.algorithms.html")
    text = page.read_text(encoding="utf-8")
    assert {"token_gae", "group_relative"} <= site[page].anchors
    assert "<code>discount</code>" in text
