"""Serves the prepared forum: `python -m agentgym_envs.webarena.sites.forum.server --help`."""

import os

from agentgym_envs.webarena.sites import chance, clock


def main() -> None:
    """Runs until it is stopped."""
    clock.install()  # before anything of Django
    chance.install()
    import django

    from agentgym_envs.webarena.sites import django_server, episode_server
    from agentgym_envs.webarena.sites.forum.content import CONTENT

    arguments = episode_server.parse_arguments("Serves the embedded forum.")
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentgym_envs.webarena.sites.forum.settings"
    django.setup()
    django_server.serve(arguments, content=CONTENT, warm_up=("/", "/topic/1/"))


if __name__ == "__main__":
    main()
