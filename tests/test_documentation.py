"""The documentation: files, headings, commands, options and functions on its pages exist."""

import ast
import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import itertools
import os
import pathlib
import pkgutil
import re
import shlex

import pytest
from absl import flags
from ml_collections import config_flags

import agentgym_jax
from agentgym_envs import scaffold
from agentgym_envs.__main__ import _parser as environment_commands
from agentgym_jax.client.errors import EnvCause
from agentgym_jax.sweeps.configs import load_sweep
from agentgym_jax.telemetry.guards import GuardSettings
from tests.run_python import output_of

ROOT = pathlib.Path(__file__).parents[1]
LOG = ROOT / "experiments" / "LOG.md"
API = ROOT / "docs" / "api.md"
GUIDES = [ROOT / "README.md", ROOT / "envs" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MANUALS = sorted({*GUIDES, *(ROOT / "envs").rglob("*.md")})
PAGES = sorted({*MANUALS, *(ROOT / "experiments").rglob("*.md")})
FOLDERS = "agentgym_jax|configs|docs|envs|experiments|notebooks|tests"

LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
COMMAND = re.compile(r"python3? -m (agentgym_(?:jax|envs)[\w.]*)([^\n`|&>]*)")
FILE_AND_SOURCE = re.compile(r"`(\w+\.py)`:\n+```python\n(.*?)```", re.DOTALL)
API_ROW = re.compile(r"^\| \[`([\w.]+?)\.(\w+)(?:\((.*?)\))?`\]\((\S+)\) \| .+ \|$", re.MULTILINE)


def each(pages):
    """Returns a decorator that runs a test once for each page."""
    return pytest.mark.parametrize("page", pages, ids=lambda p: p.relative_to(ROOT).as_posix())


def read(page):
    return page.read_text(encoding="utf-8")


def prose(page):
    """Returns the text of a page without fenced code."""
    return re.sub(r"^ *```.*?^ *```$", "", read(page), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """Returns the anchors that GitHub makes for the headings of a page."""
    found = set()
    for title in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        numbered = (f"{slug}-{n}" if n else slug for n in itertools.count())
        found.add(next(anchor for anchor in numbered if anchor not in found))
    return found


def commands(page):
    """Returns (module, arguments) of each command of this project on a page."""
    text = re.sub(r"\\\n\s*", " ", read(page))
    return [(module, shlex.split(rest, comments=True)) for module, rest in COMMAND.findall(text)]


@each(PAGES)
def test_each_link_to_a_file_or_a_heading_resolves(page):
    broken = []
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if re.match(r"[a-z]+:", link) or (target.exists() and not anchor):
            continue
        if not target.exists() or anchor not in anchors(target):
            broken.append(link)
    assert not broken


@each(MANUALS)  # excludes records of experiments, which name files of older commits
def test_each_file_that_a_page_names_exists(page):
    broken = []
    for name in re.findall(r"`([\w./-]+)`", prose(page)):
        if re.match(rf"(?:{FOLDERS})/", name):
            candidates = [ROOT / name, page.parent / name]
        # commands create the pages below runs/
        elif name.endswith(".md") and not name.startswith("runs/"):
            candidates = [page.parent / name, *ROOT.glob(f"docs/{name}"), ROOT / name]
        else:
            continue
        if not any(path.exists() for path in candidates):
            broken.append(name)
    assert not broken


@each(GUIDES)
def test_each_command_names_a_module_and_options_that_exist(page, tmp_path, monkeypatch):
    for name, source in FILE_AND_SOURCE.findall("\n".join(map(read, GUIDES))):
        (tmp_path / name).write_text(source, encoding="utf-8")
    scaffold.write("my_game", tmp_path)  # as the tutorial does
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for folder in ("configs", "experiments"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for module, arguments in commands(page):
        if module == "agentgym_envs":
            parse_environment_command(arguments)
        elif flag_definitions(module):
            parse_flags(module, arguments)
        else:
            source = pathlib.Path(importlib.util.find_spec(module).origin).read_text("utf-8")
            options = [a.partition("=")[0] for a in arguments if a.startswith("--")]
            assert all(f'"{option}"' in source for option in options), (module, arguments)


def parse_environment_command(arguments):
    """Parses a command of `agentgym_envs`; NAME and my_... are placeholders for any environment."""
    arguments = ["maze" if re.match(r"my_|NAME$", a) else a for a in arguments]
    try:
        environment_commands(arguments).parse_args(arguments)
    except SystemExit as stopped:
        raise AssertionError(f"agentgym_envs {shlex.join(arguments)} is refused") from stopped


def parse_flags(module, arguments):
    """Parses a command line of absl flags, including the config file and its overrides."""
    if any(f"--config=configs/{name}X.py" in arguments for name in ("", "eval/", "sweeps/")):
        arguments = [a for a in arguments if not a.startswith("--config")]
    values = flags.FlagValues()
    for kind, name in flag_definitions(module) | flag_definitions("agentgym_jax.cli.startup"):
        if kind == "DEFINE_config_file":
            config_flags.DEFINE_config_file(
                name, lock_config=True, sys_argv=["", *arguments], flag_values=values
            )
        elif kind == "DEFINE_bool":
            flags.DEFINE_bool(name, None, "", flag_values=values)
        else:
            flags.DEFINE_string(name, None, "", flag_values=values)
    rest = values(["", *arguments])[1:]
    if any(a.startswith("--config=") for a in arguments):
        # these statements raise an error if the file is missing
        config = values["config"].value
        assert load_sweep(config) if module.endswith("sweep") else config.to_dict()
    positional = ("results", "view", "replay", "sweep")
    assert not rest or module.endswith(positional), (module, rest)


@functools.cache
def flag_definitions(module):
    """Returns the flags that a module defines, as type and name, without importing the module."""
    spec = importlib.util.find_spec(module)
    assert spec, f"there is no module {module}"
    if spec.submodule_search_locations:
        spec = importlib.util.find_spec(f"{module}.__main__")
    tree = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
    # The source is parsed because modules that define the same flag cannot be imported together.
    return {
        (node.func.attr, node.args[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith("DEFINE_")
    }


def test_a_misspelled_option_in_a_command_is_detected(monkeypatch):
    monkeypatch.chdir(ROOT)
    config = "--config=configs/quickstart.py"
    parse_flags("agentgym_jax.train", [f"{config}:smoke", "--workdir=x", "--config.seed=1"])
    wrong = [
        ([config, "--workdirs=x"], flags.UnrecognizedFlagError),
        ([config, "--config.optimizer.rate=1"], AttributeError),
        ([f"{config}:smok"], flags.IllegalFlagValueError),
        (["--config=configs/quickstarts.py"], OSError),
    ]
    for arguments, error in wrong:
        with pytest.raises(error):
            parse_flags("agentgym_jax.train", arguments)
    with pytest.raises(AssertionError), contextlib.redirect_stderr(None):
        parse_environment_command(["textcraft", "--prot", "1"])


def test_each_row_of_the_api_page_names_an_object_of_the_linked_file():
    rows = API_ROW.findall(read(API))
    assert len(rows) == len(re.findall(r"^\| \[", read(API), re.MULTILINE)) > 50
    for module, name, arguments, link in rows:
        found = pkgutil.resolve_name(f"{module}:{name}")
        assert (API.parent / link).resolve() == pathlib.Path(pkgutil.resolve_name(module).__file__)
        if callable(found) and arguments:
            parameters = set(inspect.signature(found).parameters)
            assert set(re.findall(r"\w+", arguments)) <= parameters, (name, parameters)


def api_examples():
    """Returns the examples of the API page: of the commands, of a loaded run, of an environment."""
    return re.findall(r"```python\n(.*?)```", read(API), re.DOTALL)


def test_the_example_of_an_environment_on_the_api_page_runs():
    commands, _, environment = api_examples()
    names = re.search(r"^from agentgym_jax import (.*)$", commands, re.MULTILINE)[1].split(", ")
    assert set(names) <= set(agentgym_jax.__all__)
    exec(environment, {})


@pytest.mark.slow
def test_the_examples_of_the_api_page_run_in_order(tmp_path):
    path = os.pathsep.join([str(ROOT), str(ROOT / "envs")])
    settings = {"XLA_FLAGS": "", "JAX_ENABLE_COMPILATION_CACHE": "false", "PYTHONPATH": path}
    output_of("-c", "\n".join(api_examples()), cwd=tmp_path, **settings)
    assert (tmp_path / "runs/eval_smoke/scores.json").exists()


def test_the_troubleshooting_page_has_every_guard_and_every_cause_of_an_environment_error():
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    # an action is a text, and a threshold a number
    guards = [f.name for f in dataclasses.fields(GuardSettings) if isinstance(f.default, str)]
    for name in (*guards, *EnvCause):
        assert f"`{name}`" in page


def test_the_index_of_the_log_has_one_row_for_each_entry_in_its_order():
    index, _, entries = read(LOG).partition("\n## ")
    titles = re.findall(r"^## (\S+) (.*)$", f"## {entries}", re.MULTILINE)
    rows = re.findall(r"^\| ([\d-]+) \| \[(.+)\]\(#\S+\) \| .{10,} \|$", index, re.MULTILINE)
    assert rows == titles


def test_the_index_of_the_pages_lists_each_page_once():
    listed = re.findall(
        r"^(?:\d+\.|-) \[[^]]+\]\((\w+\.md)\)", read(ROOT / "docs" / "README.md"), re.MULTILINE
    )
    assert sorted(listed) == sorted(
        p.name for p in (ROOT / "docs").glob("*.md") if p.name != "README.md"
    )
    assert "(docs/README.md)" in read(ROOT / "README.md")
