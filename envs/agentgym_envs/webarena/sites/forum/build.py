"""Makes the template of the forum: `python -m agentgym_envs.webarena.sites.forum.build FOLDER`."""

import os
import pathlib
import sys

from agentgym_envs.webarena.sites import chance, clock


def main() -> None:
    """Builds in the folder that is the only argument."""
    folder = pathlib.Path(sys.argv[1])
    clock.install()  # before anything of Django
    chance.install()
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "agentgym_envs.webarena.sites.forum.settings"
    django.setup()
    from agentgym_envs.webarena.sites.django_template import make_template
    from agentgym_envs.webarena.sites.forum import seed

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    make_template(folder, lambda: seed.seed(folder), say)


if __name__ == "__main__":
    main()
