"""The notebooks, executed from top to bottom on a CPU."""

import os
import pathlib

import nbclient
import nbformat
import pytest

ROOT = pathlib.Path(__file__).parents[2]


def execute(name, start, source):
    """Executes a notebook whose cell that starts with `start` has `source` instead; returns the
    outputs of its cells, and the lines that they printed.
    """
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    settings = next(c for c in notebook.cells if c.source.startswith(start))
    settings.source = source(settings.source)
    client = nbclient.NotebookClient(
        notebook, timeout=None, resources={"metadata": {"path": str(ROOT)}}
    )
    client.execute()
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    text = "".join(o["text"] for o in outputs if o["output_type"] == "stream")
    return outputs, text.splitlines()


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("XLA_FLAGS", "")


@pytest.mark.slow
def test_the_quickstart_notebook_runs(tmp_path):
    settings = f'VARIANT = "smoke"\nWORKDIR = pathlib.Path({str(tmp_path / "run")!r})'
    outputs, lines = execute("quickstart.ipynb", "VARIANT", lambda _: settings)
    header = [i for i, line in enumerate(lines) if line.endswith(" on babyai")]
    last = [i for i, line in enumerate(lines) if line.startswith("finished: ")]
    assert len(header) == len(last) == 1 and last[0] - header[0] < 60
    assert not any("\x1b" in line for line in lines)
    assert any("image/png" in o.get("data", {}) for o in outputs)
    assert os.path.exists(tmp_path / "run" / "scores.json")


@pytest.mark.slow
def test_the_tpu_notebook_runs_on_a_cpu(tmp_path):
    folder = str(tmp_path / "run")
    outputs, lines = execute(
        "tpu_vm.ipynb",
        "STEPS",
        lambda text: text.replace('ROOT / "runs" / "tpu_vm"', f"pathlib.Path({folder!r})"),
    )
    assert "1 x cpu" in lines
    assert any(line.startswith("finished: 2 steps") for line in lines)
    assert sum(" sampled tokens/s " in line for line in lines) >= 1
    assert any("image/png" in o.get("data", {}) for o in outputs)


@pytest.mark.slow
def test_the_notebook_of_an_agent_program_runs(tmp_path):
    settings = f'VARIANT = "smoke"\nFOLDER = pathlib.Path({str(tmp_path)!r})'
    _, lines = execute("your_agent.ipynb", "VARIANT", lambda _: settings)
    assert any(line.startswith("finished: 3 steps") for line in lines)
    assert any(line.startswith("branch 1: ") for line in lines)
    assert sum(line.startswith("answer: ") for line in lines) == 1
