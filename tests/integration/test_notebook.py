"""The notebooks, executed from top to bottom on a CPU as they are shipped."""

import ast
import json
import os
import pathlib
import re

import nbclient
import nbformat
import pytest

from agentgym_jax.config.config_files import resolve
from agentgym_jax.telemetry.metrics import lookup
from tests.run_python import run_python

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
METRIC = re.compile(r"(?:rollout|policy|eval|time|rate|optim|system)/[a-z_]+")


def execute(name, folder, **changes):
    """Executes a notebook in a folder; returns the outputs of its cells, and the lines that they
    printed.

    `changes` are texts by names of variables. A text replaces the value that a cell gives a
    variable, which is only done for a value that needs the network or many minutes.
    """
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    for variable, text in changes.items():
        (cell,) = [c for c in notebook.cells if re.search(rf"^{variable} = ", c.source, re.M)]
        cell.source = re.sub(rf"^{variable} = .*", f"{variable} = {text}", cell.source, flags=re.M)
    client = nbclient.NotebookClient(
        notebook, timeout=None, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    text = "".join(o["text"] for o in outputs if o["output_type"] == "stream")
    return outputs, text.splitlines()


def has(outputs, kind):
    """Returns True if an output has a type such as `image/png`."""
    return any(kind in output.get("data", {}) for output in outputs)


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "envs")]))
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")


def cells(path, kind):
    found = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_a_badge_and_no_outputs(path):
    assert "[![Open in Colab](https://colab.research.google.com/" in cells(path, "markdown")[0]
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_without_the_package_the_first_cell_gives_one_clear_line(path, tmp_path):
    done = run_python("-I", "-S", "-c", cells(path, "code")[0], cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "The package agentgym_jax is not installed: set REPOSITORY in this cell and run it again.\n"
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_metrics_and_config_keys_of_a_notebook_exist(path):
    tree = ast.parse("\n".join(cells(path, "code")))
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    texts = [text for text in texts if isinstance(text, str)]
    for name in METRIC.findall(" ".join(texts)):
        assert lookup(name)
    configs = [resolve(name, {}) for name in re.findall(r"configs/[\w/]+\.py", " ".join(texts))]
    for node in ast.walk(tree):
        for key in node.keys if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and "." in key.value:
                assert any(has_key(config, key.value) for config in configs), key.value


def has_key(config, key):
    """Returns True if a config has a value at a dotted key."""
    for part in key.split("."):
        if part not in config:
            return False
        config = config[part]
    return True


@pytest.mark.slow
def test_the_quickstart_notebook_runs_in_its_smoke_variant(tmp_path):
    outputs, lines = execute("quickstart.ipynb", tmp_path, VARIANT='"smoke"')
    header = [i for i, line in enumerate(lines) if line.endswith(" on babyai")]
    last = [i for i, line in enumerate(lines) if line.startswith("finished: ")]
    assert len(header) == len(last) == 1 and last[0] - header[0] < 100
    assert not any("\x1b" in line for line in lines)
    assert has(outputs, "image/png") and has(outputs, "text/html")
    assert (tmp_path / "runs/notebook_smoke/scores.json").exists()


@pytest.mark.slow
def test_the_notebook_about_reading_runs_compares_two_runs(tmp_path):
    outputs, lines = execute("reading_a_run.ipynb", tmp_path, STEPS="8")
    assert sum(line.startswith("Result(") for line in lines) == 2
    assert any(line.startswith("difference on ") for line in lines)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert has(outputs, "text/html")
    fast = tmp_path / "runs/reading/fast"
    assert (fast / "report.html").exists()
    assert '"policy/grad_norm"' in (fast / "metrics.jsonl").read_text()  # updates are to be seen


@pytest.mark.slow
def test_the_notebook_of_an_environment_checks_it_and_trains_on_it(tmp_path):
    outputs, lines = execute("your_environment.ipynb", tmp_path)
    assert any(line.endswith(" on signs") for line in lines)
    assert any(line.startswith("finished: 3 steps") for line in lines)
    assert has(outputs, "text/html")


@pytest.mark.slow
def test_the_notebook_of_an_agent_program_runs(tmp_path):
    _, lines = execute("your_agent.ipynb", tmp_path)
    assert any(line.startswith("finished: 3 steps") for line in lines)
    assert any(line.startswith("branch 1: ") for line in lines)
    assert sum(line.startswith("answer: ") for line in lines) == 1


@pytest.mark.slow
def test_the_notebook_of_qwen_runs_with_a_tiny_random_model(tmp_path):
    config = '"configs/rl/babyai_qwen.py:smoke"'  # the weights of the shipped one are downloaded
    outputs, lines = execute("qwen_lora.ipynb", tmp_path, CONFIG=config)
    assert any(line.startswith("finished: ") for line in lines)
    assert sum(line.startswith("answer: ") for line in lines) == 1
    assert has(outputs, "image/png")
    assert (tmp_path / "runs/qwen_lora/exported/model.safetensors").exists()


@pytest.mark.slow
def test_the_tpu_notebook_runs_on_a_cpu(tmp_path):
    outputs, lines = execute("tpu_vm.ipynb", tmp_path)
    assert "1 x cpu" in lines
    assert any(line.startswith("finished: 2 steps") for line in lines)
    assert sum(" sampled tokens/s " in line for line in lines) >= 1
    assert has(outputs, "image/png")
