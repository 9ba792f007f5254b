"""Compares the results of evaluations: a leaderboard in the terminal and a page in Markdown.

  python -m agentgym_jax.results runs/eval_random runs/eval_quickstart --out=runs/results.md

Every argument is a scores.json or a folder with a scores.json, also in a bucket. The page has a
leaderboard with intervals, the sub-tasks of the suite, a paired comparison of every result with the
baseline, and figures. Results with different task manifests are rejected; the message names the
difference.
"""

if __name__ == "__main__":  # before JAX is imported
    from agentgym_jax.runs import interrupts

    interrupts.install()

import pathlib

from absl import app, flags
from rich.markdown import Markdown

from agentgym_jax.cli.startup import launch
from agentgym_jax.evaluation import compare, score_plots, score_report
from agentgym_jax.runs import bucket
from agentgym_jax.runs.atomic_files import RunFolderError, check_writable, write_atomic
from agentgym_jax.telemetry.console import open_console

_OUT = flags.DEFINE_string("out", "results.md", "The page; figures go to a folder next to it.")
_BASELINE = flags.DEFINE_integer(
    "baseline", 1, "Number, from 1, of the result to compare all others with; 0: no comparison."
)
_PLOTS = flags.DEFINE_bool("plots", True, "Draw figures.")


def main(argv: list[str]) -> int:
    """Reads, compares and writes the results; returns the exit status."""
    paths = argv[1:]
    if not paths:
        raise app.UsageError("give at least one scores.json, or a folder that holds one")
    if not 0 <= _BASELINE.value <= len(paths):
        raise app.UsageError(f"--baseline={_BASELINE.value}, but there are {len(paths)} results")
    out = pathlib.Path(_OUT.value).expanduser()
    check_writable(out)
    copies = [bucket.local_copy(path, with_trajectories=False) for path in paths]
    paths = [str(copy) for copy in copies]
    write(paths, out, _BASELINE.value, with_plots=_PLOTS.value)
    overview = score_report.leaderboard(compare.load(paths))
    console = open_console()
    console.print(Markdown(overview))
    console.print(f"the page: {out}", highlight=False, soft_wrap=True)
    return 0


def write(paths: list[str], out: pathlib.Path, baseline: int, *, with_plots: bool) -> str:
    """Writes the page, and its figures into `<out without suffix>_plots/`; returns the page.

    `baseline` is the number, from 1, of the result that all other results are compared with; 0 for
    no comparison.
    """
    results = compare.load(paths)
    compare.check_comparable(results)
    comparisons = []
    if baseline:
        first = results[baseline - 1]
        others = [r for r in results if r is not first and compare.common_items(first, r)]
        comparisons = [compare.compare(first, r) for r in others]
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    figures = (
        score_plots.write_plots(results, out.with_name(f"{out.stem}_plots")) if with_plots else []
    )
    text = score_report.results_page(results, comparisons, figures, out.parent)
    write_atomic(out, text)
    return text


if __name__ == "__main__":
    launch(main, errors=(ValueError, OSError, RunFolderError), only_flags=False)
