"""Hook of mkdocs: navigation, pages outside of `docs/`, the Python reference, and links.

The navigation is made from the lists of docs/README.md: a new page needs one line there.
"""

import pathlib
import re
from collections.abc import Iterator
from typing import Any

import reference
import repository
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
_ITEM = re.compile(r"^(?:\d+\.|-) \[[^]]+\]\((\S+)\)", re.MULTILINE)


def _slug(title: str, separator: str) -> str:
    """Returns the anchor that a code host makes for a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", separator)


def _experiments() -> list[str]:
    """Returns the pages of experiments, newest first."""
    return sorted(
        (p.relative_to(ROOT).as_posix() for p in (ROOT / "experiments").glob("[0-9]*/README.md")),
        reverse=True,
    )


def _navigation() -> Iterator[dict[str, list[Any]]]:
    """Yields the sections of docs/README.md with their pages."""
    for section in INDEX.read_text(encoding="utf-8").split("\n## ")[1:]:
        title = section.partition("\n")[0]
        links = _ITEM.findall(section)
        pages: list[Any] = [
            repository.site_uri(ROOT, (INDEX.parent / link).resolve().relative_to(ROOT).as_posix())
            for link in links
        ]
        if title == "Reference":
            names = [name for name, _ in reference.reference_pages(ROOT)]
            pages.append({"Modules": [f"reference/{name}.md" for name in names]})
        if title == "Experiments":
            pages += [repository.site_uri(ROOT, path) for path in _experiments()]
        yield {title: pages}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets the navigation and the anchors."""
    config.nav = ["README.md", *_navigation()]
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": _slug}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the reference, and the files of the repository that pages link to."""
    pages = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    for path in repository.linked_files(ROOT, [*pages, *_experiments()]):
        if path.startswith("docs/"):
            continue
        uri, text = repository.site_uri(ROOT, path), repository.page_text(ROOT, path)
        content = {"abs_src_path": str(ROOT / path)} if text is None else {"content": text}
        file = File.generated(config, uri, inclusion=InclusionLevel.NOT_IN_NAV, **content)
        files.append(file)
    for name, text in reference.reference_pages(ROOT):
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Changes the relative links of a page to pages of the site."""
    return repository.rewrite_links(ROOT, page.file.src_uri, markdown)
