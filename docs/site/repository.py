"""The files of the repository as pages of the site, and the links between them.

A page of `docs/` keeps its name. Other files that a page links to are below `repository/`, with
source files and notebooks converted to pages. The same Markdown is readable on a code host.
"""

import json
import pathlib
import posixpath
import re
from collections.abc import Iterator

LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^()\s]+)(\))")
_REMOTE_PICTURE = re.compile(r"!\[([^]]*)\]\(https?:[^)]*\)")
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_LANGUAGES = {".py": "python", ".json": "json", ".cff": "yaml", ".toml": "toml", ".yml": "yaml"}
_LANGUAGES |= {"": "text", ".txt": "text", ".sh": "bash", ".in": "text"}
_LONGEST_SOURCE = 200_000  # longer files are offered unchanged


def repository_path(uri: str) -> str | None:
    """Returns the file that a page of the site shows; None for pages of the reference."""
    if uri.startswith("reference/"):
        return None
    if not uri.startswith("repository/"):
        return f"docs/{uri}"
    path = uri.removeprefix("repository/")
    return path if pathlib.PurePosixPath(path).stem.count(".") == 0 else path.removesuffix(".md")


def site_uri(root: pathlib.Path, path: str) -> str:
    """Returns the page or file of the site for a file or folder of the repository.

    Args:
      root: Folder of the repository.
      path: Path below `root`.
    """
    if (root / path).is_dir() and (root / path / "README.md").is_file():
        path = f"{path}/README.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    is_page = _is_source(root / path) or path.endswith(".ipynb")
    return f"repository/{path}{'.md' if is_page else ''}"


def _is_source(path: pathlib.Path) -> bool:
    return path.suffix in _LANGUAGES and path.is_file() and path.stat().st_size < _LONGEST_SOURCE


def page_text(root: pathlib.Path, path: str) -> str | None:
    """Returns the Markdown of a file outside of `docs/`; None for a file without text."""
    file = root / path
    if file.suffix == ".md":
        return file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        return _notebook(file)
    if not _is_source(file):
        return None
    fence = "`" * 8
    text = file.read_text(encoding="utf-8").rstrip()
    language = _LANGUAGES[file.suffix]
    return f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{fence}{language}\n{text}\n{fence}\n"


def _notebook(path: pathlib.Path) -> str:
    """Returns the text and code of a notebook, without outputs and pictures from other servers."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return _REMOTE_PICTURE.sub(r"\1", "\n\n".join(parts)) + "\n"


def _targets(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yields each relative link of a page, as the path below the root and the anchor."""
    for part in _FENCE.split(text)[::2]:
        for _, link, _ in LINK.findall(part):
            if not re.match(r"[a-z]+:|#", link):
                name, _, anchor = link.partition("#")
                yield posixpath.normpath(posixpath.join(posixpath.dirname(path), name)), anchor


def linked_files(root: pathlib.Path, starts: list[str]) -> list[str]:
    """Returns `starts` and all files outside of `docs/` that can be reached from them by links."""
    found: list[str] = []
    waiting = list(starts)
    while waiting:
        path = waiting.pop(0)
        if (root / path).is_dir():
            path = f"{path}/README.md"
        if path in found or path.startswith("../") or not (root / path).is_file():
            continue
        found.append(path)
        if path.endswith((".md", ".ipynb")):
            text = page_text(root, path)
            waiting += [target for target, _ in _targets(path, text or "")]
    return found


def rewrite_links(root: pathlib.Path, uri: str, text: str) -> str:
    """Returns the text of a page with its relative links changed to pages of the site."""
    path = repository_path(uri)
    if path is None:
        return text

    def change(match: re.Match[str]) -> str:
        link = match[2]
        if re.match(r"[a-z]+:|#", link):
            return match[0]
        name, hashtag, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        new = posixpath.relpath(site_uri(root, target), posixpath.dirname(uri) or ".")
        return f"{match[1]}{new}{hashtag}{anchor}{match[3]}"

    parts = _FENCE.split(text)
    parts[::2] = [LINK.sub(change, part) for part in parts[::2]]
    return "".join(parts)
