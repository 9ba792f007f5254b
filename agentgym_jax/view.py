r"""A run as one HTML page: curves, early warnings, every episode turn by turn and token by token.

  python -m agentgym_jax.view runs/quickstart                 # writes runs/quickstart/report.html
  python -m agentgym_jax.view runs/quickstart --serve         # follows the run while it goes on

The file needs no network and no server: open it in a browser, send it to a colleague.
"""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import app, flags, logging

from agentgym_jax.env_client.in_process import in_process_servers
from agentgym_jax.env_client.transport import Transport
from agentgym_jax.run_folder import RunFolderError
from agentgym_jax.viewer.live import LiveRun, LiveServer
from agentgym_jax.viewer.report import checked_folder, write_report
from agentgym_jax.viewer.worlds import REPLAYED, WITH_BROWSER


@contextlib.contextmanager
def replaying(
    run: str, max_replays: int, max_web_replays: int
) -> Iterator[Mapping[str, Transport]]:
    """Environments that replays need, with the run's options, as far as this machine can run them."""
    names = (REPLAYED if max_replays > 0 else ()) + (WITH_BROWSER if max_web_replays > 0 else ())
    with contextlib.ExitStack() as stack:
        transports: dict[str, Transport] = {}
        for name in names:
            try:
                options = {name: _options(run, name)}
                transports |= stack.enter_context(in_process_servers([name], options=options))
            except ValueError as error:
                logging.warning("no pictures of the world: %s", error)
        yield transports


def _options(run: str, environment: str) -> Mapping[str, Any]:
    """Of an environment in the run's config; none where the run has no such environment."""
    path = checked_folder(run).config_path
    config = checked_folder(run).config() if path.exists() else {}
    entry = config.get("environments", {}).get(environment, {})
    return entry.get("options", {})


def serve(run: str, *, host: str, port: int, max_replays: int, max_web_replays: int) -> None:
    """Serves the page until interrupted."""
    with replaying(run, max_replays, max_web_replays) as transports:
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
    flags.DEFINE_integer(
        "max_web_replays",
        0,
        "Web episodes that are played again, for a picture of every page: about a second a turn, on "
        "the sites that the run's config names.",
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
            serve(
                given[0],
                host=values.host,
                port=values.port,
                max_replays=values.max_replays,
                max_web_replays=values.max_web_replays,
            )
            return
        limits = (values.max_replays, values.max_web_replays)
        with replaying(given[0], *limits) as transports:
            written = write_report(
                given[0],
                values.out,
                transports=transports,
                max_replays=limits[0],
                max_web_replays=limits[1],
            )
        size = written.stat().st_size / 1e6
        sys.stdout.write(f"wrote {written} ({size:.1f} MB)\n")
    except (ValueError, OSError, RunFolderError) as error:
        sys.exit(f"view: {error}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
