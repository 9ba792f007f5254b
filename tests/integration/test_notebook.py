"""The notebook, executed from top to bottom in its smoke variant."""

import os
import pathlib

import nbclient
import nbformat
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_the_quickstart_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("XLA_FLAGS", "")
    notebook = nbformat.read(ROOT / "notebooks" / "quickstart.ipynb", as_version=4)
    settings = next(c for c in notebook.cells if c.source.startswith("VARIANT"))
    settings.source = f'VARIANT = "smoke"\nWORKDIR = pathlib.Path({str(tmp_path / "run")!r})'
    client = nbclient.NotebookClient(
        notebook, timeout=None, resources={"metadata": {"path": str(ROOT)}}
    )
    client.execute()
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    lines = "".join(o["text"] for o in outputs if o["output_type"] == "stream").splitlines()
    header = [i for i, line in enumerate(lines) if line.endswith(" on babyai")]
    last = [i for i, line in enumerate(lines) if line.startswith("finished: ")]
    assert len(header) == len(last) == 1 and last[0] - header[0] < 60
    assert not any("\x1b" in line for line in lines)
    assert any("image/png" in o.get("data", {}) for o in outputs)
    assert os.path.exists(tmp_path / "run" / "scores.json")
