"""Builds the template of the shop: `python -m agentgym_sites.shop.build FOLDER`."""

import os
import pathlib
import sys

from agentgym_sites import chance, clock


def main() -> None:
    """Builds the template in the folder given as the only argument."""
    folder = pathlib.Path(sys.argv[1])
    clock.install()  # must precede all imports of Django
    chance.install()
    import django

    os.environ["SHOP_PREPARED"] = str(folder)
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentgym_sites.shop.settings"
    django.setup()
    from agentgym_sites.django_template import make_template
    from agentgym_sites.shop import images, seed, tables

    images.draw_all(folder / "media", tables.tables().products)
    make_template(folder, lambda: seed.seed(folder))


if __name__ == "__main__":
    main()
