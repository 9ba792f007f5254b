"""Training from an installed wheel, outside a checkout, and the wheel of a source distribution."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from agentgym_jax.runs.run_folder import RunFolder
from tests.run_python import output_of

ROOT = pathlib.Path(__file__).parents[2]
PARTS = (
    "agentgym_jax",
    "configs",
    "envs",
    "setup.py",
    "pyproject.toml",
    "README.md",
    "MANIFEST.in",
)
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")


def build(source, kind):
    """Builds a distribution of a source tree; returns its path."""
    output_of("setup.py", "-q", kind, "--dist-dir=dist", cwd=source)
    (built,) = (source / "dist").glob("*.whl" if kind == "bdist_wheel" else "*.tar.gz")
    return built


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Returns a copy of the source tree, without files of earlier builds."""
    source = tmp_path_factory.mktemp("source")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=IGNORED)
        else:
            shutil.copy(ROOT / name, source / name)
    return source


@pytest.fixture(scope="module")
def wheel(source):
    return build(source, "bdist_wheel")


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """Returns a folder that contains the unpacked wheel as packages."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def run(site, folder, *arguments):
    """Runs Python in a folder from which the wheel can be imported but this checkout cannot."""
    return output_of(*arguments, cwd=folder, PYTHONPATH=str(site), XLA_FLAGS="")


def own_config():
    """Returns the example config of docs/runs.md."""
    text = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return code


def test_the_wheel_contains_every_config_and_the_files_that_configs_read(site):
    names = {
        path.relative_to(ROOT / "configs")
        for path in (ROOT / "configs").rglob("*")
        if path.suffix in (".py", ".json")
    }
    installed = site / "agentgym_jax" / "configs"
    assert all((installed / name).is_file() for name in names)
    assert not (site / "configs").exists()


@pytest.mark.slow
def test_a_source_distribution_gives_the_same_wheel(source, wheel, tmp_path):
    with tarfile.open(build(source, "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    again = build(unpacked, "bdist_wheel")
    assert again.name == wheel.name
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())
        names = [name for name in first.namelist() if not name.endswith("RECORD")]
        assert all(first.read(name) == second.read(name) for name in names)


@pytest.mark.slow
def test_the_installed_command_trains_a_shipped_config(wheel, tmp_path):
    """The packages of this environment serve the installed one, so nothing is downloaded."""
    installed = tmp_path / "installed"
    where = ["--no-deps", "--target", str(installed), str(wheel)]
    try:
        install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", sys.executable]
        subprocess.run([*install, *where], check=True)
    except subprocess.CalledProcessError:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *where], check=True)
    script = str(installed / "bin" / "agentgym-train")
    folder = tmp_path / "empty"
    folder.mkdir()
    version = run(installed, folder, script, "--version").split()[1]
    assert f"-{version}-" in wheel.name
    arguments = ("--config=configs/rl/bandit.py:smoke", "--workdir=runs/bandit")
    assert "finished: " in run(installed, folder, script, *arguments)
    provenance = RunFolder(folder / "runs" / "bandit").provenance()
    assert provenance["starts"][-1]["versions"]["agentgym-jax"] == version
    assert str(ROOT) not in json.dumps(provenance)


@pytest.mark.slow
def test_shipped_configs_are_found_from_any_folder(site, tmp_path):
    program = """
import json, pathlib, sys
from agentgym_jax.config.config_files import find_shipped_config
from agentgym_jax.configs.rl import two_rooms
files = [e.path for e in two_rooms.get_config().environments.babyai.values() if hasattr(e, "path")]
assert len(files) == 2 and all(pathlib.Path(f).is_file() for f in files), files
print(json.dumps(find_shipped_config(sys.argv[1:])))
"""
    arguments = ["--config=configs/rl/two_rooms.py:smoke", "--config", "configs/quickstart.py"]
    kept = ["--config=configs/none.py", "--config.seed=3", "--config=mine.py", "--workdir=configs"]
    found = json.loads(run(site, tmp_path, "-c", program, *arguments, *kept))
    shipped = site / "agentgym_jax" / "configs"
    assert found[0] == f"--config={shipped / 'rl' / 'two_rooms.py'}:smoke"
    assert found[1:3] == ["--config", str(shipped / "quickstart.py")]
    assert found[3:] == kept


@pytest.mark.slow
def test_a_file_in_the_current_folder_takes_precedence_over_a_shipped_config(site, tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "quickstart.py").touch()
    program = "import sys; from agentgym_jax.config.config_files import *; print(find_shipped_config(sys.argv))"
    arguments = ["--config=configs/quickstart.py"]
    assert repr(arguments[0]) in run(site, tmp_path, "-c", program, *arguments)


@pytest.mark.slow
def test_a_custom_config_trains_in_a_custom_folder(site, tmp_path):
    (tmp_path / "doors.py").write_text(own_config(), encoding="utf-8")
    smaller = (
        "--config.total_steps=1",
        "--config.sft.steps=1",
        "--config.evaluation.at_start=False",
        "--config.evaluation.greedy=False",
        "--config.model.architecture.num_layers=1",
    )
    out = run(
        site,
        tmp_path,
        *("-m", "agentgym_jax.train", "--config=doors.py:smoke", "--workdir=runs/doors"),
        *smaller,
    )
    assert "parameters:" in out
    assert "rloo on babyai" in out and "finished: 1 steps in runs/doors" in out
    folder = RunFolder(tmp_path / "runs" / "doors")
    tasks = {record["item_id"] for record in folder.read_trajectories(1)}
    assert {int(name.split("_")[1]) % 40 for name in tasks} == {13}
    provenance = (folder.path / "provenance.json").read_text(encoding="utf-8")
    assert str(ROOT) not in provenance
