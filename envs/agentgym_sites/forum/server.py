"""Serves the prepared forum: `python -m agentgym_sites.forum.server --help`."""

import os

from agentgym_sites import chance, clock


def main() -> None:
    """Serves the forum until the process is stopped."""
    clock.install()  # must precede all imports of Django
    chance.install()
    import django

    from agentgym_sites import django_server, episode_server
    from agentgym_sites.forum.content import CONTENT

    arguments = episode_server.parse_arguments("Serves the embedded forum.")
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentgym_sites.forum.settings"
    django.setup()
    django_server.serve(arguments, content=CONTENT, warm_up=("/", "/topic/1/"))


if __name__ == "__main__":
    main()
