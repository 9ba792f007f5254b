"""Limits on time in tests: far above what a loaded machine needs, or reached on purpose."""

import ast
import pathlib
import re

import pytest

TESTS = pathlib.Path(__file__).parent
LEAST_S = 60.0
OPTION = re.compile(r"(timeout|patience)(_s|_seconds)?$")
WAITS = ("communicate", "join", "poll", "result", "settimeout", "wait")
CLOCKS = ("monotonic", "perf_counter", "time")
# nodes of which `_limits` finds something
LIMITING = (ast.Call, ast.Dict, ast.arguments, ast.BinOp, ast.Compare)


def _called(node):
    """Returns the last part of the name of a called function; empty for any other node."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", ""))


def _named(node):
    """Yields the names and values of arguments, defaults and entries of dictionaries in a node."""
    if isinstance(node, ast.Call):
        # counts by cause are dictionaries that also have a key `timeout`
        end = "_s" if _called(node) == "dict" else ""
        yield from ((k.arg, k.value) for k in node.keywords if k.arg and k.arg.endswith(end))
    elif isinstance(node, ast.Dict):
        entries = zip(node.keys, node.values, strict=True)
        names = ((getattr(key, "value", None), value) for key, value in entries)
        yield from ((n, v) for n, v in names if isinstance(n, str) and n.endswith("_s"))
    elif isinstance(node, ast.arguments):
        plain = [*node.posonlyargs, *node.args]
        yield from ((a.arg, v) for a, v in zip(plain[::-1], node.defaults[::-1], strict=False))
        yield from ((a.arg, v) for a, v in zip(node.kwonlyargs, node.kw_defaults, strict=True))


def _limits(node):
    """Yields the expressions in a node that limit how long something may take."""
    yield from (value for name, value in _named(node) if OPTION.search(name))
    if _called(node) in WAITS and isinstance(node.func, ast.Attribute):
        yield from node.args[:1]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        if _called(node.left) in CLOCKS:
            yield node.right
    elif isinstance(node, ast.Compare) and isinstance(node.ops[-1], ast.Lt | ast.LtE):
        if any(_called(part) in CLOCKS for part in ast.walk(node)):
            yield node.comparators[-1]


def short_limits(text):
    """Returns the lines with a limit below `LEAST_S` seconds that are not marked as reached."""
    lines = text.splitlines()
    found = {
        limit.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, LIMITING)
        for limit in _limits(node)
        if isinstance(limit, ast.Constant) and isinstance(limit.value, int | float)
        if 0 < limit.value < LEAST_S
    }
    return [lines[i - 1].strip() for i in sorted(found) if "# reached" not in lines[i - 1]]


@pytest.mark.parametrize(
    "line",
    [
        "client(step_timeout_s=1.0)",
        "options = {'connect_timeout_s': 2}",
        "options = dict(breaker_patience_s=2.0)",
        "def until(condition, timeout_s=20.0): pass",
        "def until(*, timeout_s=20.0): pass",
        "subprocess.run(command, timeout=30)",
        "thread.join(5)",
        "deadline = time.monotonic() + 10",
        "assert time.perf_counter() - started < 9",
        "assert 0.2 <= time.monotonic() - begin < 2",
    ],
)
def test_a_short_limit_is_found(line):
    assert short_limits(line) == [line]
    assert not short_limits(f"{line}  # reached")
    assert not short_limits(re.sub(r"[\d.]+(?=\D*$)", "PATIENCE_S", line))


def test_no_limit_on_time_is_short_unless_it_is_reached():
    paths = set(TESTS.rglob("*.py")) - set((TESTS / "parity").iterdir()) - {pathlib.Path(__file__)}
    texts = {str(path.relative_to(TESTS)): path.read_text(encoding="utf-8") for path in paths}
    short = {path: short_limits(text) for path, text in texts.items()}
    assert {path: lines for path, lines in short.items() if lines} == {}
