r"""A run as one HTML page: curves, early warnings, every episode turn by turn and token by token.

  python -m agentgym_jax.view runs/quickstart                 # writes runs/quickstart/report.html
  python -m agentgym_jax.view runs/quickstart --serve         # follows the run while it goes on

The file needs no network and no server: open it in a browser, send it to a colleague.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence

from absl import app, flags, logging

from agentgym_jax.env_client.in_process import in_process_servers
from agentgym_jax.env_client.transport import Transport
from agentgym_jax.run_folder import RunFolderError
from agentgym_jax.viewer.live import LiveRun, LiveServer
from agentgym_jax.viewer.report import checked_folder, write_report
from agentgym_jax.viewer.worlds import REPLAYED


@contextlib.contextmanager
def replaying(max_replays: int) -> Iterator[Mapping[str, Transport]]:
    """Environments that replays need, as far as this machine can run them."""
    with contextlib.ExitStack() as stack:
        transports: dict[str, Transport] = {}
        for name in REPLAYED if max_replays > 0 else ():
            try:
                transports |= stack.enter_context(in_process_servers([name]))
            except ValueError as error:
                logging.warning("no pictures of the world: %s", error)
        yield transports


def serve(run: str, *, host: str, port: int, max_replays: int) -> None:
    """Serves the page until interrupted."""
    with replaying(max_replays) as transports:
        live = LiveRun(checked_folder(run), transports)
        with LiveServer(live, host, port) as server:
            sys.stdout.write(f"{run} is at {server.url} (Ctrl-C ends)\n")
            sys.stdout.flush()
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()


def define_flags() -> None:
    """The command line."""
    flags.DEFINE_string("run", None, "Run folder; may also stand without the flag.")
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


def main(argv: Sequence[str]) -> None:
    """Entry point; expects the flags of `define_flags`."""
    values = flags.FLAGS
    given = [*argv[1:], *([values.run] if values.run is not None else [])]
    if len(given) != 1:
        raise app.UsageError(f"expected one run folder, got {len(given)}: {' '.join(given)}")
    if not values["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    try:
        if values.serve:
            if values.out is not None:
                raise app.UsageError("--serve writes no file: leave out --out, or --serve")
            serve(given[0], host=values.host, port=values.port, max_replays=values.max_replays)
            return
        with replaying(values.max_replays) as transports:
            written = write_report(
                given[0], values.out, transports=transports, max_replays=values.max_replays
            )
        size = written.stat().st_size / 1e6
        sys.stdout.write(f"wrote {written} ({size:.1f} MB)\n")
    except (ValueError, OSError, RunFolderError) as error:
        sys.exit(f"view: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
