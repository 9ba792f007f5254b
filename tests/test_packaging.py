"""Both setup.py files: they install the same packages for the servers and declare every command."""

import ast
import json
import pathlib
import pkgutil
import re
import sys

import pytest

import agentgym_envs
import agentgym_jax
from tests.imports import import_statements
from tests.run_python import output_of

ROOT = pathlib.Path(__file__).parents[1]
READ = """
import json, runpy, setuptools
setuptools.setup = lambda **options: print(json.dumps(options))
runpy.run_path("setup.py")
"""


@pytest.fixture(scope="module")
def both():
    """Returns the arguments of both setup.py files for setuptools.

    The first setup.py is for the whole project, the second for the servers alone.
    """
    found = []
    for folder in (ROOT, ROOT / "envs"):
        found.append(json.loads(output_of("-c", READ, cwd=folder)))
    return found


def test_the_whole_project_installs_all_requirements_of_the_servers(both):
    project, servers = both
    assert set(servers["install_requires"]) <= set(project["install_requires"])
    assert servers["extras_require"].items() <= project["extras_require"].items()
    assert "pydantic>=2.9" in servers["install_requires"]


def test_both_setup_files_declare_the_servers_equally(both):
    project, servers = both
    assert servers["packages"] and set(servers["packages"]) <= set(project["packages"])
    assert servers["package_data"].items() <= project["package_data"].items()
    for group, points in servers["entry_points"].items():
        assert set(points) <= set(project["entry_points"][group])


# Distributions whose modules have other names.
DISTRIBUTIONS = {
    "absl": "absl-py",
    "google": "protobuf",
    "jaxlib": "jax",  # jax requires it
    "ml_collections": "ml-collections",
    "orbax": "orbax-checkpoint",
    "pydantic_core": "pydantic",  # pydantic requires it
}
# Imports that only an extra installs, by module of agentgym_jax.
OF_EXTRAS = {
    "programs/mini_swe.py": {"minisweagent", "yaml"},
    "programs/react.py": {"openai"},
    "programs/verifiers_env.py": {"verifiers"},
}


def imported_distributions(path):
    """Returns the distributions whose modules a file imports, without those of this project."""
    names = set()
    for node, _ in import_statements(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        else:
            names.add(node.module)
    roots = {name.split(".")[0] for name in names} - sys.stdlib_module_names
    roots = {root for root in roots if not root.startswith("agentgym_") and root != "configs"}
    return {DISTRIBUTIONS.get(root, root.replace("_", "-")) for root in roots}


def test_every_import_of_training_is_a_requirement_or_that_of_an_extra(both):
    required = {re.match(r"[\w-]+", line)[0] for line in both[0]["install_requires"]}
    root = ROOT / "agentgym_jax"
    missing = {}
    for path in root.glob("**/*.py"):
        name = path.relative_to(root).as_posix()
        if left := imported_distributions(path) - required - OF_EXTRAS.get(name, set()):
            missing[name] = left
    assert not missing


def test_every_place_has_the_same_version(both):
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert {
        *(options["version"] for options in both),
        *re.findall(r"^version: (.+)$", citation, re.MULTILINE),
        agentgym_envs.__version__,
    } == {agentgym_jax.__version__}
    for module in ("agentgym_jax.results", "agentgym_envs"):
        assert output_of("-m", module, "--version").split()[1] == agentgym_jax.__version__


def test_training_and_servers_share_no_requirement_with_two_limits(both):
    names = [re.split(r"[^\w-]", text)[0].lower() for text in set(both[0]["install_requires"])]
    assert sorted(names) == sorted(set(names))


def test_every_console_script_names_a_function(both):
    scripts = both[0]["entry_points"]["console_scripts"]
    targets = dict(script.split(" = ") for script in scripts)
    assert {"agentgym-train", "agentgym-evaluate", "agentgym-view", "agentgym-envs"} <= set(targets)
    assert all(callable(pkgutil.resolve_name(target)) for target in targets.values())


def test_every_data_file_of_the_servers_is_installed(both):
    for package, patterns in both[1]["package_data"].items():
        root = ROOT / "envs" / package
        installed = {path for pattern in patterns for path in root.glob(pattern)}
        data = {path for kind in ("html", "json", "toml") for path in root.rglob(f"*.{kind}")}
        assert data <= installed
