"""Pages of the Python reference, read from the source without importing it."""

import ast
import pathlib
import re
from collections.abc import Iterator

PACKAGES = ("agentgym_jax", "envs/agentgym_envs")
_SKIPPED = ("configs", "pages", "__pycache__")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples):\s*$")


def reference_pages(root: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Yields the name of each package and its page, for packages with public names.

    Args:
      root: Folder of the repository.
    """
    for package in PACKAGES:
        base = (root / package).parent
        folders = [p for p in [root / package, *(root / package).rglob("*")] if p.is_dir()]
        for folder in sorted(folders):
            if set(folder.relative_to(base).parts) & set(_SKIPPED):
                continue
            modules = [_module(path, root, base) for path in sorted(folder.glob("*.py"))]
            texts = [text for text in modules if text]
            name = ".".join(folder.relative_to(base).parts)
            if texts:
                yield name, "\n\n".join([f"# {name}", *texts]) + "\n"


def _module(path: pathlib.Path, root: pathlib.Path, base: pathlib.Path) -> str:
    """Returns the part of a page about one module; empty if it has no public name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = [text for node in tree.body if (text := _definition(node, "###"))]
    if not parts:
        return ""
    source = path.relative_to(root).as_posix()
    name = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
    head = [f"## {name}", _docstring(tree), f"Source: `{source}`"]
    return "\n\n".join([*head, *parts])


def _definition(node: ast.stmt, heading: str) -> str:
    """Returns the documentation of a public class or function; empty for all other statements."""
    if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return ""
    if node.name.startswith("_") or not ast.get_docstring(node):
        return ""
    if not isinstance(node, ast.ClassDef):
        return "\n\n".join([f"{heading} {node.name}", _code(_signature(node)), _docstring(node)])
    bases = ", ".join(map(ast.unparse, node.bases))
    fields = [
        f"    {ast.unparse(child)}"
        for child in node.body
        if isinstance(child, ast.AnnAssign) and not ast.unparse(child.target).startswith("_")
    ]
    start = next((c for c in node.body if getattr(c, "name", "") == "__init__"), None)
    if isinstance(start, ast.FunctionDef):
        fields.append("    " + _signature(start).replace("\n", "\n    "))
    lines = [f"class {node.name}{f'({bases})' if bases else ''}:", *fields]
    parts = [f"{heading} {node.name}", _code("\n".join(lines)), _docstring(node)]
    if isinstance(start, ast.FunctionDef):
        parts.append(_docstring(start))
    parts += [_definition(child, heading + "#") for child in node.body]
    return "\n\n".join(part for part in parts if part)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Returns the `def` of a function, with one line per argument if it is long."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    text = f"{word} {node.name}({ast.unparse(node.args)}){returns}"
    if len(text) <= 88:
        return text
    arguments = re.split(r", (?=\*?\*?\w+(?::|=|,|$)|/|\*,)", ast.unparse(node.args))
    return "\n".join([f"{word} {node.name}(", *(f"    {a}," for a in arguments), f"){returns}"])


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Returns a docstring in Google style as Markdown."""
    lines: list[str] = []
    in_section = False
    for line in (ast.get_docstring(node) or "").splitlines():
        section = _SECTION.match(line)
        if section:
            in_section = True
            lines += ["", f"**{section[1]}**", ""]
        elif in_section and line.startswith("  "):
            entry = re.match(r"^  (\*{0,2}[\w., ]+): (.*)", line)
            if entry:
                lines.append(f"- `{entry[1]}`: {_escape(entry[2])}")
            else:
                lines.append(("  " if line.startswith("    ") else "") + _escape(line.strip()))
        elif line.startswith("  "):  # an example
            lines.append(f"    {line}")
        else:
            in_section = in_section and not line.strip()
            lines.append(_escape(line))
    # Markdown needs an empty line before an indented example
    return re.sub(r"(?m)^(\S.*)\n(?= {6})", r"\1\n\n", "\n".join(lines)).strip()


def _escape(text: str) -> str:
    """Escapes the characters of Markdown and HTML outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*<_\[\]])", r"\\\1", p) for p in parts)
