"""Serves the prepared Trac: `python -m agentgym_envs.webarena.sites.trac.server --help`."""

from agentgym_envs.webarena.sites.trac import present


def main() -> None:
    """Runs until it is stopped."""
    present.install()  # before anything of Trac
    from agentgym_envs.webarena.sites import episode_server
    from agentgym_envs.webarena.sites.trac import application

    arguments = episode_server.parse_arguments("Serves the embedded Trac.")
    application.serve(arguments)


if __name__ == "__main__":
    main()
