"""Import statements of a file, read from its source without importing it."""

import ast
import functools
import pathlib

_WITH_STATEMENTS = ast.stmt | ast.excepthandler | ast.match_case


@functools.cache
def import_statements(path: pathlib.Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Returns each import statement and whether it is in a function.

    Statements that only a type checker reads are left out.
    """
    found: list[tuple[ast.Import | ast.ImportFrom, bool]] = []
    left: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text("utf-8"), str(path)), False)]
    while left:
        node, is_late = left.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append((node, is_late))
        elif not _is_for_types(node):
            is_late |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            children = ast.iter_child_nodes(node)
            left += [(child, is_late) for child in children if isinstance(child, _WITH_STATEMENTS)]
    return found


def _is_for_types(node: ast.AST) -> bool:
    test = getattr(node, "test", None)
    return isinstance(node, ast.If) and isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
