"""The corpus of facts, which is built on this machine when it is first needed."""

import pathlib

from agentgym_envs.searchqa.corpus import build, store
from agentgym_envs.searchqa.corpus.progress import Progress

DATASET = "facts"  # of its questions in the manifest


def prepared() -> pathlib.Path:
    """Folder of the corpus; built if it is not there, which takes about a minute.

    Raises:
      SetupError: a package that it is made of is missing or of another version.
    """
    folder = store.default_folder()
    if store.is_built(folder):  # whatever became of the packages since
        return folder
    inputs = build.Inputs()
    return build.build(inputs, Progress(build.stages(inputs)))
