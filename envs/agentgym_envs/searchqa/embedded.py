"""The corpus of facts, which is built on this machine when it is first needed."""

import pathlib

from agentgym_envs.searchqa.building import locked, say, signs_of_life
from agentgym_envs.searchqa.corpus import build, store
from agentgym_envs.searchqa.corpus.progress import Progress

DATASET = "facts"  # of its questions in the manifest


def prepared() -> pathlib.Path:
    """Folder of the corpus; built if it is not there, which takes about a minute.

    Raises:
      SetupError: a package that it is made of is missing or of another version.
    """
    folder = store.default_folder()
    if store.is_built(folder):
        return folder
    with locked(folder):
        if not store.is_built(folder):
            inputs = build.Inputs()
            inputs.named()  # what is missing is told first
            say(f"building the corpus of facts in {folder}, once; it takes about a minute")
            with signs_of_life():
                build.build(inputs, Progress(build.stages(inputs)))
    return folder
