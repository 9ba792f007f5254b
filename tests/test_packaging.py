"""The two setup.py files agree on what the environment servers need."""

import ast
import pathlib

ROOT = pathlib.Path(__file__).parents[1]


def literal(path: pathlib.Path, name: str) -> list[str]:
    """Value of a top-level `name = [...]` without running the file."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == [name]:
            return ast.literal_eval(node.value)
    raise AssertionError(f"{path} does not define {name}")


def test_environments_alone_need_what_the_whole_project_installs_for_them():
    for name in ("ENVIRONMENTS", "SCIWORLD", "SEARCH", "WEB", "SITE_FILES", "ENTRY_POINTS"):
        assert literal(ROOT / "envs/setup.py", name) == literal(ROOT / "setup.py", name)


def test_both_install_the_same_package_data():
    sources = [(ROOT / name).read_text(encoding="utf-8") for name in ("setup.py", "envs/setup.py")]
    line = 'package_data={"agentgym_envs": ["*/*.json", "*/*.json.gz", *SITE_FILES]}'
    assert all(line in source for source in sources)
