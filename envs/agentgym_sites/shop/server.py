"""Serves the prepared shop: `python -m agentgym_sites.shop.server --help`."""

import os

from agentgym_sites import chance, clock


def main() -> None:
    """Serves the shop until the process is stopped."""
    clock.install()  # must precede all imports of Django
    chance.install()
    import django

    from agentgym_sites import django_server, episode_server
    from agentgym_sites.shop.content import CONTENT

    arguments = episode_server.parse_arguments("Serves the embedded shop.")
    os.environ["SHOP_PREPARED"] = str(arguments.prepared)
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentgym_sites.shop.settings"
    django.setup()
    django_server.serve(arguments, content=CONTENT, warm_up=("/", "/dashboard/login/"))


if __name__ == "__main__":
    main()
