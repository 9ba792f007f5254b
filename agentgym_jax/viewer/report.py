"""A run as one HTML file that needs no network: pages, styles, scripts and data in it.

Data stands in `<script type="application/octet-stream">` elements as base64 of deflated JSON, so
no text of a model can end the element, and a page opens without decoding what is not looked at.
The policy of the page (Content-Security-Policy) names its one script by hash: nothing else runs.
"""

import base64
import hashlib
import html
import importlib.resources
import json
import pathlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from absl import logging

from agentgym_jax.env_client.transport import Transport
from agentgym_jax.metrics_file import read_metrics
from agentgym_jax.run_folder import RunFolder, write_atomic
from agentgym_jax.viewer.pieces import token_pieces
from agentgym_jax.viewer.records import (
    Bundle,
    TrajectoryFile,
    read_records,
    row_of,
    trajectory_files,
)
from agentgym_jax.viewer.series import Run
from agentgym_jax.viewer.summary import Document
from agentgym_jax.viewer.worlds import (
    WITH_BROWSER,
    ReplayError,
    can_replay,
    chosen_for_replay,
    replay,
)

# In the order in which they build on each other.
SCRIPTS = (
    "dom.js",
    "data.js",
    "charts.js",
    "overview.js",
    "filters.js",
    "list.js",
    "tokens.js",
    "babyai.js",
    "textcraft.js",
    "sciworld.js",
    "worlds.js",
    "episode.js",
    "compare.js",
    "app.js",
)
_LEVEL = 6  # of compression: 9 is 3 % smaller and takes four times as long


def packed(document: Any) -> bytes:
    """Deflated JSON, as the page's DecompressionStream("deflate") reads it."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode("utf-8", "surrogatepass"), _LEVEL)


def read_run(folder: RunFolder) -> tuple[Mapping | None, Mapping | None, Run]:
    """Config, provenance and metrics, each as far as the folder has it."""
    config = folder.config() if folder.config_path.exists() else None
    provenance = folder.provenance() if folder.provenance_path.exists() else None
    lines = read_metrics(folder.metrics_path) if folder.metrics_path.exists() else []
    return config, provenance, Run(lines)


def checked_folder(path: str | pathlib.Path) -> RunFolder:
    """The run folder at a path.

    Raises:
      FileNotFoundError: nothing there belongs to a run.
    """
    folder = RunFolder(path)
    known = folder.config_path.exists() or folder.metrics_path.exists()
    if not known and not trajectory_files(folder.trajectories):
        raise FileNotFoundError(
            f"{folder.path} is not a run folder: it has no config.json, metrics.jsonl or "
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
    """Writes the page of a run.

    Args:
      path: the run folder; nothing in it changes but its report.
      out: the file; `report.html` of the folder if None.
      transports: servers of environments that are asked how their world looked, by name.
      max_replays: how many episodes are played again for that.
      max_web_replays: how many episodes in a browser, with a picture of every page.

    Returns:
      The file.

    Raises:
      FileNotFoundError: `path` is not a run folder.
      ValueError: a file of the folder is damaged.
    """
    folder = checked_folder(path)
    target = folder.report_path if out is None else pathlib.Path(out).expanduser()
    files = trajectory_files(folder.trajectories)
    rows = [[row_of(record) for record in read_records(file.path)] for file in files]
    chosen = chosen_for_replay(rows, max_replays) if transports else set()
    chosen |= chosen_for_replay(rows, max_web_replays, WITH_BROWSER) if transports else set()
    config, provenance, run = read_run(folder)
    document = Document(folder.path.name, config, provenance, run, files, rows).to_json()

    def write(file: IO[str]) -> None:
        before, after = page(folder.path.name, is_live=False)
        file.write(before)
        token_ids: set[int] = set()
        replayed: list[int] = []
        first = 0
        for number, trajectory_file in enumerate(files):
            wanted = {row for at, row in chosen if at == number}
            bundle, done = make_bundle(trajectory_file, wanted, transports)
            token_ids |= bundle.token_ids
            replayed += [first + row for row in sorted(done)]
            first += len(rows[number])
            _write_element(file, trajectory_file.name, bundle.document())
        pieces = token_pieces(folder.tokenizer, sorted(token_ids))
        _write_element(file, "index", document | {"pieces": pieces, "replayed": replayed})
        file.write(after)

    write_atomic(target, write)
    logging.info("%d episodes written to %s", sum(map(len, rows)), target)
    return target


def make_bundle(
    file: TrajectoryFile, wanted: set[int], transports: Mapping[str, Transport]
) -> tuple[Bundle, set[int]]:
    """The episodes of a file, and which of the `wanted` rows could be replayed."""
    bundle, done = Bundle(), set()
    for number, record in enumerate(read_records(file.path)):
        worlds = worlds_of(record, transports) if number in wanted else None
        if worlds is not None:
            done.add(number)
        bundle.add(record, worlds)
    return bundle, done


def worlds_of(
    record: Mapping[str, Any], transports: Mapping[str, Transport]
) -> Sequence[Mapping[str, Any]] | None:
    """States along an episode; None if there is no such environment here or it went otherwise."""
    name = record["item_id"].rpartition("_")[0]
    if name not in transports or not can_replay(record):
        return None
    try:
        return replay(transports[name], record)
    except ReplayError as error:
        logging.warning("%s, sample %d: %s", record["item_id"], record["sample"], error)
        return None


def _write_element(file: IO[str], name: str, document: Any) -> None:
    data = base64.b64encode(packed(document)).decode("ascii")
    identifier = html.escape(f"data-{name}", quote=True)
    file.write(f'<script type="application/octet-stream" id="{identifier}">{data}</script>\n')


def page(name: str, *, is_live: bool) -> tuple[str, str]:
    """The HTML before and after the data."""
    text = _part("index.html")
    script = '"use strict";\n(() => {\n' + "\n".join(_scripts()) + "\n})();\n"
    style = _part("style.css")
    for part, end in ((script, "</script"), (style, "</style")):
        assert end not in part, f"{end} inside the page's own files"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        f"img-src data:; connect-src {chr(39)}{'self' if is_live else 'none'}{chr(39)}; "
        "base-uri 'none'; form-action 'none'"
    )
    values = {
        "TITLE": html.escape(name),
        "POLICY": html.escape(policy, quote=True),
        "STYLE": style,
        "SCRIPT": script,
        "LIVE": "true" if is_live else "false",
    }
    before, marker, after = text.partition("<!--DATA-->")
    assert marker, "index.html says where the data stands"
    return _filled(before, values), _filled(after, values)


def _filled(text: str, values: Mapping[str, str]) -> str:
    """In one pass: a name of a run that looks like a place to be filled stays a name."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


def _part(name: str) -> str:
    part = importlib.resources.files("agentgym_jax.viewer") / "page" / name
    return part.read_text(encoding="utf-8")


def _scripts() -> Iterator[str]:
    for name in SCRIPTS:
        yield _part(name)
