"""Report of a run: one HTML file with its styles, scripts and data.

Data are base64 of deflated JSON, so a model's text cannot end the `script` element around it. The
page's Content-Security-Policy names the only script by its hash, so no other script runs.
"""

import base64
import dataclasses
import hashlib
import html
import itertools
import json
import pathlib
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import IO, Any

import jinja2
import markupsafe
from absl import logging

from agentgym_jax.client.transport import Transport
from agentgym_jax.runs.atomic_files import disk_errors, write_atomic
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.viewer import records
from agentgym_jax.viewer.comparison import PREFIXES, comparison_of
from agentgym_jax.viewer.run_summary import OpenRun, open_run, page_of
from agentgym_jax.viewer.worlds import WITH_BROWSER, chosen_for_replay, worlds_of

_PAGE = pathlib.Path(__file__).parent / "page"
# Scripts in the order of their dependencies.
_BASE = ("dom.js", "data.js", "charts.js")
_RUN_PAGE = ("verdict.js", "overview.js", "comparison.js", "config.js", "filters.js", "list.js")
_WORLDS = ("babyai.js", "textcraft.js", "sciworld.js", "worlds.js")
_EPISODE_PAGE = ("replay.js", "tokens.js", *_WORLDS, "episode.js")
SCRIPTS = (*_BASE, *_RUN_PAGE, *_EPISODE_PAGE, "compare.js", "app.js")
_LEVEL = 6  # compression level; level 9 saves 3 % and takes four times as long


def packed(document: Any) -> bytes:
    """Compresses JSON for the page's DecompressionStream("deflate")."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode("utf-8", "surrogatepass"), _LEVEL)


def checked_folder(path: str | pathlib.Path) -> RunFolder:
    """Returns the run folder at a path; raises FileNotFoundError if it has no file of a run."""
    folder = RunFolder(path)
    known = folder.provenance_path.exists() or folder.metrics_path.exists()  # models have configs
    if not known and not records.trajectory_files(folder.trajectories):
        raise FileNotFoundError(
            f"{folder.path} is not a run folder: it has no provenance.json, metrics.jsonl or "
            "trajectories/*.jsonl. Give the --workdir of a training or evaluation run"
        )
    return folder


def write_report(
    path: str | pathlib.Path,
    out: str | pathlib.Path | None = None,
    *,
    transports: Mapping[str, Transport],
    max_replays: int,
    max_web_replays: int = 0,
) -> pathlib.Path:
    """Writes the page of a run folder to `out`, by default its `report.html`; returns the path.

    The servers in `transports`, by environment, replay at most `max_replays` episodes and at most
    `max_web_replays` web episodes to show the environment's states.

    Raises:
      FileNotFoundError: `path` is not a run folder.
      ValueError: A file of the folder is damaged.
    """
    run = read_run(path)
    target = run.folder.report_path if out is None else pathlib.Path(out).expanduser()
    part = PagePart(run, transports, _chosen(run, max_replays, max_web_replays))
    return _write_page(target, run.folder.path.name, [part], page_of(run))


def write_comparison(
    paths: Sequence[str | pathlib.Path],
    out: str | pathlib.Path,
    *,
    transports: Sequence[Mapping[str, Transport]],
    max_replays: int,
    max_web_replays: int = 0,
) -> pathlib.Path:
    """Writes the page that compares two run folders to `out`; returns the path.

    `transports` has the servers of each run. Raises the errors of `write_report`.
    """
    runs = [read_run(path) for path in paths]
    parts = [
        PagePart(run, servers, _chosen(run, max_replays, max_web_replays), prefix)
        for run, servers, prefix in zip(runs, transports, PREFIXES, strict=True)
    ]
    document = comparison_of(*runs)
    return _write_page(pathlib.Path(out).expanduser(), document["name"], parts, document)


@dataclasses.dataclass(frozen=True)
class PagePart:
    """A run inside a page, with the episodes to replay as pairs of file number and row number."""

    run: OpenRun
    transports: Mapping[str, Transport]
    replays: Collection[tuple[int, int]]
    prefix: str = ""  # precedes the names of the run's files


def read_run(path: str | pathlib.Path) -> OpenRun:
    """Reads a run folder; raises the errors of `write_report`."""
    folder = checked_folder(path)
    files = records.trajectory_files(folder.trajectories)
    rows = [list(records.parse_records(file.path, records.row_of)) for file in files]
    return open_run(folder, files, rows)


def _chosen(run: OpenRun, max_replays: int, max_web_replays: int) -> set[tuple[int, int]]:
    chosen = chosen_for_replay(run.rows, max_replays)
    return chosen | chosen_for_replay(run.rows, max_web_replays, WITH_BROWSER)


def _write_page(
    target: pathlib.Path, name: str, parts: Sequence[PagePart], document: Mapping[str, Any]
) -> pathlib.Path:
    """Writes a page with the bundles of all runs; adds token texts and replays to `document`."""

    def write(file: IO[str]) -> None:
        before, after = page(name, is_live=False)
        file.write(before)
        replayed: list[int] = []
        pieces = []
        first = 0
        for part in parts:
            token_ids: set[int] = set()
            for number, trajectory_file in enumerate(part.run.files):
                wanted = {row for at, row in part.replays if at == number}
                bundle = make_bundle(trajectory_file, wanted, part.transports)
                token_ids |= bundle.token_ids
                replayed += [first + row for row in bundle.replayed]
                first += len(part.run.rows[number])
                _write_element(file, part.prefix + trajectory_file.name, bundle.document())
            pieces.append(records.token_pieces(part.run.folder.tokenizer, sorted(token_ids)))
        _write_element(file, "index", {**document, "pieces": pieces, "replayed": replayed})
        file.write(after)

    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, write)
    logging.info("%s written", target)
    return target


def make_bundle(
    file: records.TrajectoryFile,
    wanted: Collection[int] = (),
    transports: Mapping[str, Transport] = {},
) -> records.Bundle:
    """Returns the bundle of a file; rows in `wanted` are replayed if possible.

    Raises:
      ValueError: A record is damaged.
    """
    bundle, numbers = records.Bundle(), itertools.count()

    def add(record: Any) -> None:
        bundle.add(record, worlds_of(record, transports) if next(numbers) in wanted else None)

    for _ in records.parse_records(file.path, add):
        pass
    return bundle


def _write_element(file: IO[str], name: str, document: Any) -> None:
    data = base64.b64encode(packed(document)).decode("ascii")
    identifier = html.escape(f"data-{name}", quote=True)
    file.write(f'<script type="application/octet-stream" id="{identifier}">{data}</script>\n')


def page(name: str, *, is_live: bool) -> tuple[str, str]:
    """Returns the HTML before and the HTML after the data."""
    script = '"use strict";\n(() => {\n' + "\n".join(map(_part, SCRIPTS)) + "\n})();\n"
    style = _part("style.css")
    for part, end in ((script, "</script"), (style, "</style")):
        assert end not in part, f"{end} inside the page's own files"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        f"img-src data:; connect-src '{'self' if is_live else 'none'}'; "
        "base-uri 'none'; form-action 'none'"
    )
    template = jinja2.Template(_part("index.html"), keep_trailing_newline=True)
    html_page = template.render(
        TITLE=html.escape(name),
        POLICY=html.escape(policy, quote=True),
        STYLE=style,
        SCRIPT=script,
        LIVE="true" if is_live else "false",
    )
    before, after = html_page.split("<!--DATA-->")
    return before, after


def static_page(template: str, **values: Any) -> str:
    """Returns a page without scripts: a template of `page/` with the styles of the viewer.

    Text in `values` is escaped. The template gets the Content-Security-Policy and the styles too.
    """
    style = _part("style.css")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    environment = jinja2.Environment(autoescape=True, keep_trailing_newline=True)
    return environment.from_string(_part(template)).render(
        POLICY=policy, STYLE=markupsafe.Markup(style), **values
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _part(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
