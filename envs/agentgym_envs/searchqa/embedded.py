"""The embedded corpus (agentgym_facts), built on this machine when it is first needed."""

import pathlib

from agentgym_facts import build, store

DATASET = "facts"  # name of this data set in the manifest


def prepared() -> pathlib.Path:
    """Returns the folder of the corpus; builds the corpus if it is missing, which takes about a
    minute.

    Raises:
      SetupError: A package that the build needs is missing or has another version.
    """
    folder = store.default_folder()
    if store.is_built(folder):  # a built corpus does not depend on later versions of the packages
        return folder
    return build.build(build.Inputs())
