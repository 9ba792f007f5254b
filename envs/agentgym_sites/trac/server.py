"""Serves the embedded Trac site; `python -m agentgym_sites.trac.server --help` lists the options."""

from agentgym_sites.trac import present


def main() -> None:
    """Serves Trac until the process is stopped."""
    present.install()  # must precede all imports of Trac
    from agentgym_sites import episode_server
    from agentgym_sites.trac import application

    arguments = episode_server.parse_arguments("Serves the embedded Trac.")
    application.serve(arguments)


if __name__ == "__main__":
    main()
