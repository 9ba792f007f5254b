"""Writes or serves a run as one HTML page: curves, early warnings and every episode.

  python -m agentgym_jax.view runs/quickstart                 # writes runs/quickstart/report.html
  python -m agentgym_jax.view runs/quickstart --serve         # follows the run while it trains

The run is a run folder or, without --serve, its URL in a bucket. docs/viewer.md describes the page.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence

from absl import app, flags, logging

from agentgym_jax import bucket
from agentgym_jax.client.in_process import in_process_servers
from agentgym_jax.client.transport import Transport
from agentgym_jax.run_folder import RunFolderError
from agentgym_jax.startup import launch
from agentgym_jax.viewer.live import LiveRun, LiveServer
from agentgym_jax.viewer.report import checked_folder, write_report
from agentgym_jax.viewer.worlds import REPLAYED, WITH_BROWSER

_OUT = flags.DEFINE_string(
    "out", None, "File to write; by default report.html of the run folder, or RUN.html for a URL."
)
_SERVE = flags.DEFINE_bool("serve", False, "Serve a page that follows the run; write no file.")
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address that --serve listens on.")
_PORT = flags.DEFINE_integer("port", 8010, "Port that --serve listens on; 0 picks a free one.")
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


def serve(run: str, transports: Mapping[str, Transport], host: str, port: int) -> None:
    """Serves the page of a run until interrupted."""
    live = LiveRun(checked_folder(run), transports)
    try:
        server = LiveServer(live, host, port)
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
    """Writes or serves the page of a run."""
    if len(argv) != 2:
        raise app.UsageError(f"expected one run folder, got {' '.join(argv[1:]) or 'none'}")
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    if _SERVE.value and _OUT.value is not None:
        raise app.UsageError("--serve writes no file: leave out --out, or --serve")
    run, out = argv[1], _OUT.value
    limits = {"max_replays": _MAX_REPLAYS.value, "max_web_replays": _MAX_WEB_REPLAYS.value}
    try:
        if bucket.is_url(run):
            if _SERVE.value:
                raise ValueError(f"--serve cannot follow {run}: leave it out, or copy the folder")
            folder = bucket.local_copy(run, with_trajectories=True)
            run, out = str(folder), out or f"{folder.name}.html"
        with replaying(run, **limits) as transports:
            if _SERVE.value:
                serve(run, transports, _HOST.value, _PORT.value)
                return
            written = write_report(run, out, transports=transports, **limits)
        size = written.stat().st_size / 1e6
        sys.stdout.write(f"wrote {written} ({size:.1f} MB)\n")
    except (ValueError, OSError, RunFolderError) as error:
        sys.exit(f"view: {error}")


if __name__ == "__main__":
    launch(main)
