r"""A run as one HTML page: curves, early warnings, and every episode turn by turn and token by
token.

  python -m agentgym_jax.view runs/quickstart                 # writes runs/quickstart/report.html
  python -m agentgym_jax.view runs/quickstart --serve         # follows the run while it trains

The page needs neither a network nor a server. It can be opened in a browser or sent to a colleague.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import app, flags, logging

from agentgym_jax.client.in_process import in_process_servers
from agentgym_jax.client.transport import Transport
from agentgym_jax.run_folder import RunFolderError
from agentgym_jax.viewer.live import LiveRun, LiveServer
from agentgym_jax.viewer.report import checked_folder, write_report
from agentgym_jax.viewer.worlds import REPLAYED, WITH_BROWSER


@contextlib.contextmanager
def replaying(
    run: str, max_replays: int, max_web_replays: int
) -> Iterator[Mapping[str, Transport]]:
    """Starts the environments that replays need, with the options of the run, if this machine can
    run them.
    """
    names = (REPLAYED if max_replays > 0 else ()) + (WITH_BROWSER if max_web_replays > 0 else ())
    with contextlib.ExitStack() as stack:
        transports: dict[str, Transport] = {}
        for name in names:
            try:
                options = _environment_options(run, name)
                servers = in_process_servers([name], options={name: options})
                transports |= stack.enter_context(servers)
            except ValueError as error:
                logging.warning("no pictures of the world: %s", error)
        yield transports


def _environment_options(run: str, environment: str) -> Mapping[str, Any]:
    """Returns the options of an environment in the run's config; empty if the run does not have
    this environment.
    """
    folder = checked_folder(run)
    config = folder.config() if folder.config_path.exists() else {}
    return config.get("environments", {}).get(environment, {}).get("options", {})


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


def define_flags() -> None:
    """Defines the flags of the command line."""
    flags.DEFINE_string("run", None, "Run folder; may also be given without the flag.")
    flags.DEFINE_string("out", None, "File to write; report.html of the run folder if not given.")
    flags.DEFINE_bool("serve", False, "Serve a page that follows the run instead of writing one.")
    flags.DEFINE_string("host", "127.0.0.1", "Address that --serve listens on.")
    flags.DEFINE_integer("port", 8010, "Port that --serve listens on; 0 picks a free one.")
    flags.DEFINE_integer(
        "max_replays",
        400,
        "Episodes that are played again in their environment, for pictures of the whole world; "
        "with --serve any episode is, when it is looked at, unless this is 0.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "max_web_replays",
        0,
        "Web episodes that are played again, for a picture of every page: about a second a turn, on "
        "the sites that the run's config names.",
        lower_bound=0,
    )


def main(argv: Sequence[str]) -> None:
    """Runs the program; requires the flags of `define_flags`."""
    values = flags.FLAGS
    given = [*argv[1:], *([values.run] if values.run is not None else [])]
    if len(given) != 1:
        raise app.UsageError(f"expected one run folder, got {len(given)}: {' '.join(given)}")
    if not values["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    if values.serve and values.out is not None:
        raise app.UsageError("--serve writes no file: leave out --out, or --serve")
    limits = {"max_replays": values.max_replays, "max_web_replays": values.max_web_replays}
    try:
        with replaying(given[0], **limits) as transports:
            if values.serve:
                serve(given[0], transports, values.host, values.port)
                return
            written = write_report(given[0], values.out, transports=transports, **limits)
        size = written.stat().st_size / 1e6
        sys.stdout.write(f"wrote {written} ({size:.1f} MB)\n")
    except (ValueError, OSError, RunFolderError) as error:
        sys.exit(f"view: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
