"""Console scripts: `agentgym-train` is equivalent to `python -m agentgym_jax.train`, and so on."""

import runpy


def train() -> None:
    """Trains with a config."""
    _run("train")


def evaluate() -> None:
    """Evaluates an agent."""
    _run("evaluate")


def results() -> None:
    """Compares evaluation results."""
    _run("results")


def export() -> None:
    """Exports a model as a Hugging Face directory."""
    _run("export")


def view() -> None:
    """Shows a run as an HTML page."""
    _run("view")


def _run(module: str) -> None:
    runpy.run_module(f"agentgym_jax.{module}", run_name="__main__", alter_sys=True)
