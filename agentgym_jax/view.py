"""Writes or serves a run as one HTML page: verdict, curves, early warnings and every episode.

  python -m agentgym_jax.view runs/quickstart                 # writes runs/quickstart/report.html
  python -m agentgym_jax.view runs/quickstart --serve         # follows the run while it trains
  python -m agentgym_jax.view runs/a runs/b                   # writes runs/b/comparison.html

The run is a run folder or, without --serve, its URL in a bucket. docs/viewer.md describes the page.
"""

if __name__ == "__main__":  # before JAX is imported
    from agentgym_jax.runs import interrupts

    interrupts.install()

import contextlib
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence

from absl import app, flags, logging

from agentgym_jax.checks.web_access import read_token
from agentgym_jax.cli.startup import launch
from agentgym_jax.client.in_process import in_process_servers
from agentgym_jax.client.transport import Transport
from agentgym_jax.runs import bucket
from agentgym_jax.runs.atomic_files import RunFolderError, check_writable
from agentgym_jax.runs.run_folder import RunFolder
from agentgym_jax.viewer.live import LiveRun, LiveServer
from agentgym_jax.viewer.report import checked_folder, write_comparison, write_report
from agentgym_jax.viewer.worlds import REPLAYED, WITH_BROWSER

_OUT = flags.DEFINE_string(
    "out",
    None,
    "File to write; by default report.html of the run folder, or comparison.html of the second of "
    "two. For a URL the default is RUN.html or comparison.html in the current folder.",
)
_SERVE = flags.DEFINE_bool("serve", False, "Serve a page that follows the run; write no file.")
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address that --serve listens on.")
_PORT = flags.DEFINE_integer("port", 8010, "Port that --serve listens on; 0 picks a free one.")
_TOKEN = flags.DEFINE_string(
    "token_variable",
    "",
    "Environment variable with a token that --serve asks for as a password; needed for addresses "
    "that other machines can reach.",
)
_MAX_REPLAYS = flags.DEFINE_integer(
    "max_replays",
    400,
    "Maximum number of episodes replayed in their environment, for pictures of the whole world. "
    "With --serve, every episode is replayed when it is opened, unless this is 0.",
    lower_bound=0,
)
_MAX_WEB_REPLAYS = flags.DEFINE_integer(
    "max_web_replays",
    0,
    "Maximum number of web episodes replayed on the sites of the run's config, for a picture of "
    "every page; a turn takes about a second.",
    lower_bound=0,
)


@contextlib.contextmanager
def replaying(
    run: str, max_replays: int, max_web_replays: int
) -> Iterator[Mapping[str, Transport]]:
    """Starts the environments for replays, with the run's options, if this machine can run them."""
    names = (REPLAYED if max_replays > 0 else ()) + (WITH_BROWSER if max_web_replays > 0 else ())
    folder = checked_folder(run)
    with contextlib.ExitStack() as stack:
        transports: dict[str, Transport] = {}
        for name in names:
            try:
                config = folder.config() if folder.config_path.exists() else {}
                options = config.get("environments", {}).get(name, {}).get("options", {})
                servers = in_process_servers([name], options={name: options})
                transports |= stack.enter_context(servers)
            except ValueError as error:
                logging.warning("no pictures of the world: %s", error)
        yield transports


def serve(
    run: str, transports: Mapping[str, Transport], host: str, port: int, token: str = ""
) -> None:
    """Serves the page of a run until interrupted."""
    live = LiveRun(checked_folder(run), transports)
    try:
        server = LiveServer(live, host, port, token)
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"--serve cannot listen on {host}:{port} ({error}): give another --port, or "
            "--port=0 for a free one"
        ) from error
    with server:
        sys.stdout.write(f"{run} is at {server.url} (Ctrl-C ends)\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def main(argv: Sequence[str]) -> None:
    """Writes or serves the page of a run, or writes the comparison of two runs."""
    if len(argv) not in (2, 3):
        found = " ".join(argv[1:]) or "none"
        raise app.UsageError(f"expected one run folder, or two to compare; got {found}")
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    if _SERVE.value and _OUT.value is not None:
        raise app.UsageError("--serve writes no file: leave out --out, or --serve")
    if _SERVE.value and len(argv) > 2:
        raise app.UsageError("--serve follows one run: leave it out, or name one run")
    if _SERVE.value and bucket.is_url(argv[1]):
        raise ValueError(f"--serve cannot follow {argv[1]}: leave it out, or copy the folder")
    written = write_pages(argv[1:])
    if written is not None:
        size = written.stat().st_size / 1e6
        sys.stdout.write(f"wrote {written} ({size:.1f} MB)\n")


def write_pages(runs: Sequence[str]) -> pathlib.Path | None:
    """Writes the page of one run or the comparison of two; returns its path, or None if served."""
    if _OUT.value:
        check_writable(pathlib.Path(_OUT.value).expanduser())
    limits = {"max_replays": _MAX_REPLAYS.value, "max_web_replays": _MAX_WEB_REPLAYS.value}
    folders = [str(bucket.local_copy(run, with_trajectories=True)) for run in runs]
    is_remote = bucket.is_url(runs[-1])
    with contextlib.ExitStack() as stack:
        transports = [stack.enter_context(replaying(folder, **limits)) for folder in folders]
        if _SERVE.value:
            token = read_token(_HOST.value, _TOKEN.value)
            serve(folders[0], transports[0], _HOST.value, _PORT.value, token)
            return None
        if len(folders) == 2:
            place = pathlib.Path() if is_remote else RunFolder(folders[1]).path
            out = _OUT.value or place / "comparison.html"
            return write_comparison(folders, out, transports=transports, **limits)
        name = f"{pathlib.Path(folders[0]).name}.html" if is_remote else None
        return write_report(folders[0], _OUT.value or name, transports=transports[0], **limits)


if __name__ == "__main__":
    launch(main, errors=(ValueError, OSError, RunFolderError), only_flags=False)
