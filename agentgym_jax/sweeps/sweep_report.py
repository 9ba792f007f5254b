"""Report of a sweep: report.md, report.html and runs.csv in its folder."""

import base64
import collections
import csv
import dataclasses
import io
import pathlib
from collections.abc import Sequence

import numpy as np

from agentgym_jax.evaluation.score_report import markdown_table
from agentgym_jax.evaluation.statistics import CONFIDENCE, student_interval
from agentgym_jax.runs.atomic_files import RunFolderError, disk_errors, write_atomic
from agentgym_jax.sweeps import sweep_results as numbers
from agentgym_jax.sweeps.folder import Record, SweepFolder
from agentgym_jax.sweeps.sweep_plots import write_curves
from agentgym_jax.sweeps.sweep_results import RunResult, Variant
from agentgym_jax.viewer.report import static_page

_NONE = "-"
_PERCENT = f"{100 * CONFIDENCE:.0f} %"


@dataclasses.dataclass(frozen=True)
class Section:
    """Part of the report: title, sentences, a table and a figure, each of which may be absent."""

    title: str
    notes: Sequence[str] = ()
    heading: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    figure: pathlib.Path | None = None

    @property
    def image(self) -> str:
        """Returns the figure as a URL with its data; empty without a figure."""
        if self.figure is None:
            return ""
        return "data:image/png;base64," + base64.b64encode(self.figure.read_bytes()).decode("ascii")


def write_report(workdir: str) -> list[pathlib.Path]:
    """Writes the report about the finished runs of a sweep, and returns the paths of its files.

    Raises:
      RunFolderError: The folder holds no sweep, or no run is finished yet.
    """
    folder = SweepFolder(workdir)
    record = folder.read()
    found = numbers.read_results(folder, record)
    finished = sum(result.state == "finished" for result in found)
    if not finished:
        raise RunFolderError(
            f"{folder.path}: 0 of {len(found)} runs are finished, so there is nothing to report yet"
        )
    sections = make_sections(record, found, folder.plots / "curves.png")
    name = folder.path.name
    page = folder.path / "report.html"
    paths = [folder.path / "report.md", folder.path / "runs.csv", page]
    write_atomic(paths[0], _markdown(name, sections, folder.path))
    write_atomic(paths[1], _runs_csv(record, found))
    write_atomic(page, static_page("tables.html", TITLE=name, SECTIONS=sections))
    return paths


def make_sections(
    record: Record, found: Sequence[RunResult], curves: pathlib.Path
) -> list[Section]:
    """Returns the sections of the report, and draws the figure of the curves."""
    with disk_errors(curves):
        named = {variant_name(v): part for v, part in numbers.variants(found).items()}
        tokens = numbers.common_tokens(found) if record.step == "equal_tokens" else None
        has_curves = write_curves(curves, record.metric, named, tokens)
    sections = [_overview(record, found), _variants(record, found)]
    if record.baseline:
        sections.append(_comparisons(record, found))
    sections += [_effect(record, found, axis) for axis in record.axes]
    if has_curves:
        note = "Line: mean over finished seeds. Band: their smallest and largest value."
        sections.append(Section("Learning curves", [note], figure=curves))
    return [*sections, _cost(found), _runs(found)]


def variant_name(variant: Variant) -> str:
    """Returns the name of a variant, such as `algorithm=ppo, learning_rate=0.001`."""
    return ", ".join(f"{axis}={text}" for axis, text in variant) or "base config"


def _overview(record: Record, found: Sequence[RunResult]) -> Section:
    counts = collections.Counter(result.state for result in found)
    notes = [f"{counts['finished']} of {len(found)} runs are finished; the tables use only these."]
    if counts["finished"] < len(found):
        notes.append(
            f"Unfinished: {counts['unfinished']}. Not started: {counts['not started']}. The numbers "
            "will change."
        )
    missing = [r.run.name for r in found if r.state == "finished" and r.value is None]
    if missing:
        notes.append(
            f"{len(missing)} finished runs have no {record.metric} and are left out: "
            f"{', '.join(missing)}."
        )
    word = {"max": "larger", "min": "smaller"}[record.goal]
    at = f"{record.step} step"
    if record.step == "equal_tokens":
        at = (
            f"after {numbers.common_tokens(found) or 0:,.0f} training tokens, sampled and observed, "
            "interpolated between evaluations"
        )
    notes.append(f"Metric: {record.metric}, {at}; {word} is better.")
    notes.append(f"Base config: {record.config}")
    return Section("Overview", notes)


def _variants(record: Record, found: Sequence[RunResult]) -> Section:
    rows = []
    for variant, part in numbers.variants(found).items():
        known = numbers.values(part)
        mean = float(np.mean(list(known.values()))) if known else None
        interval = student_interval(list(known.values())) if known else None
        by_seed = ", ".join(f"{seed}: {_number(value)}" for seed, value in known.items())
        cells = [f"{len(known)} of {len(part)}", _number(mean), _interval(interval)]
        rows.append((mean, [variant_name(variant), *cells, by_seed or _NONE]))
    sign = -1.0 if record.goal == "max" else 1.0
    rows.sort(key=lambda row: (row[0] is None, sign * (row[0] or 0.0)))
    note = (
        f"Best mean first. Interval: {_PERCENT}, Student's t over seeds; it needs two seeds and "
        "describes new seeds of the same config, not new tasks."
    )
    heading = ["variant", "seeds", "mean", f"{_PERCENT} interval", "by seed"]
    return Section("Variants", [note], heading, [cells for _, cells in rows])


def _comparisons(record: Record, found: Sequence[RunResult]) -> Section:
    compared = numbers.compare(found, record.baseline)
    rows = [
        [
            variant_name(c.variant),
            variant_name(c.baseline),
            str(c.pairs),
            _number(c.difference, signed=True),
            _interval(c.interval),
            _number(c.p_value),
            _number(c.corrected),
        ]
        for c in compared
    ]
    tested = [c for c in compared if c.p_value is not None]
    notes = [
        "Each variant minus its counterpart with "
        f"{variant_name(tuple(record.baseline.items()))}, in pairs of equal seeds. "
        f"Interval: {_PERCENT}, Student's t over pairs. p: two-sided sign-flip test, exact up to 16 "
        f"pairs. p (Holm) is corrected for the {len(tested)} comparisons of this table.",
    ]
    if tested:
        fewest = min(c.pairs for c in tested)
        notes.append(f"With {fewest} pairs, p cannot be below {2 / 2**fewest:.2g}.")
    left_out = {c.variant for c in compared}
    rest = [
        variant_name(v)
        for v in numbers.variants(found)
        if v not in left_out and not record.baseline.items() <= set(v)
    ]
    if rest:
        notes.append(f"Without exactly one counterpart, and so not compared: {'; '.join(rest)}.")
    heading = [
        "variant",
        "baseline",
        "pairs",
        "difference",
        f"{_PERCENT} interval",
        "p",
        "p (Holm)",
    ]
    return Section("Comparison with the baseline", notes, heading, rows)


def _effect(record: Record, found: Sequence[RunResult], axis: str) -> Section:
    rows = [
        [text, str(count), _number(mean)]
        for text, count, mean in numbers.marginal_means(found, axis, record.axes[axis])
    ]
    note = "Mean over the variants with this label, each with its mean over finished seeds."
    return Section(f"Effect of {axis}", [note], [axis, "variants", "mean"], rows)


def _cost(found: Sequence[RunResult]) -> Section:
    rows = []
    for variant, part in numbers.variants(found).items():
        rows.append([variant_name(variant), *_cost_cells(part)])
    rows.append(["all", *_cost_cells(found)])
    note = (
        "All runs, unfinished ones included. Hours: wall time from each start of a process to its "
        "last recorded step; work that a killed process lost is not counted. Tokens: sampled "
        "tokens of training, or trained tokens in jobs that do not sample."
    )
    heading = ["variant", "runs started", "hours", "hours per run", "tokens", "tokens per run"]
    return Section("Cost", [note], heading, rows)


def _cost_cells(part: Sequence[RunResult]) -> list[str]:
    started = [r for r in part if r.state != "not started"]
    hours, tokens = sum(r.hours for r in started), sum(r.tokens for r in started)
    count = max(1, len(started))
    totals = [f"{hours:.3f}", f"{hours / count:.3f}", f"{tokens:,.0f}", f"{tokens / count:,.0f}"]
    return [str(len(started)), *totals]


def _runs(found: Sequence[RunResult]) -> Section:
    rows = [
        [r.run.name, r.state, f"{r.steps[0]} of {r.steps[1]}", _number(r.value), f"{r.hours:.3f}"]
        + [f"{r.tokens:,.0f}"]
        for r in found
    ]
    return Section("Runs", (), ["run", "state", "steps", "metric", "hours", "tokens"], rows)


def _number(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return _NONE
    return f"{value:+.4g}" if signed else f"{value:.4g}"


def _interval(interval: tuple[float, float] | None) -> str:
    return _NONE if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"


def _markdown(name: str, sections: Sequence[Section], folder: pathlib.Path) -> str:
    parts = [f"# {name}"]
    for section in sections:
        parts += [f"## {section.title}", *section.notes]
        if section.rows:
            parts.append(markdown_table(section.heading, section.rows))
        if section.figure is not None:
            parts.append(f"![{section.title}]({section.figure.relative_to(folder).as_posix()})")
    return "\n\n".join(parts) + "\n"


def _runs_csv(record: Record, found: Sequence[RunResult]) -> str:
    """Returns one line per run with full precision, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    measured = ["state", "steps", "total_steps", record.metric, "hours", "tokens"]
    writer.writerow(["run", *record.axes, "seed", *measured])
    for r in found:
        labels: list[str] = [r.run.variant.get(axis, "") for axis in record.axes]
        value = "" if r.value is None else repr(r.value)
        cells = [r.state, *r.steps, value, repr(r.hours), f"{r.tokens:.0f}"]
        writer.writerow([r.run.name, *labels, r.run.seed, *cells])
    return text.getvalue()
