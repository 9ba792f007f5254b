"""Completeness of docs/configs.md, the page of the shipped configs.

Run as a program, this file writes docs/configs.md.
"""

import ast
import pathlib

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configs.md"
FOLDERS = {
    ".": "Quickstarts",
    "rl": "Reinforcement learning",
    "paper": "Runs of the AgentGym-RL paper",
    "sft": "SFT",
    "dpo": "DPO",
    "agentevol": "AgentEvol",
    "eval": "Evaluations",
    "sweeps": "Sweeps",
}
HEAD = """\
# Shipped configs

A config is a Python file. Its docstring has the command, the needs, the result and the source of its values. Options follow the
path after a colon: `--config=configs/quickstart.py:smoke`. Every config has the option `smoke`, which runs all phases
in a small size. `python -m agentgym_jax.train --list` prints a short list, and `--config=FILE --keys` all values of a
config. [config.md](config.md) explains the keys.

This page is generated from the docstrings: `python tests/config/test_shipped_configs_page.py`.
"""


def shipped(folder):
    """Yields the path of each config of a folder, its docstring and the one of its function."""
    for path in sorted((ROOT / "configs" / folder).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        about = ast.get_docstring(tree) or ""
        if "get_config" in functions and "--config=" in about:
            yield path, about, ast.get_docstring(functions["get_config"]) or ""


def render_page():
    parts = [HEAD]
    for folder, title in FOLDERS.items():
        parts.append(f"## {title}\n")
        for path, about, options in shipped(folder):
            name = path.relative_to(ROOT).as_posix()
            first, _, rest = about.partition("\n")
            # the signature is in the source; only the options are of interest here
            options = " ".join(options.split()).removeprefix("Returns the config. ")
            parts += [f"### {name}\n", f"{first} ([source](../{name}))\n"]
            parts += [f"{options}\n"] if options else []
            parts.append(f"```text\n{rest.strip(chr(10))}\n```\n")
    return "\n".join(parts)


def test_the_page_equals_the_docstrings():
    assert PAGE.read_text(encoding="utf-8") == render_page(), (
        "docs/configs.md is stale: python tests/config/test_shipped_configs_page.py writes it"
    )


def test_every_folder_of_configs_is_on_the_page():
    with_configs = {p.parent.name for p in (ROOT / "configs").glob("*/*.py") if p.stem[0] != "_"}
    assert with_configs <= set(FOLDERS)
    assert render_page().count("\n### ") >= 24


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
