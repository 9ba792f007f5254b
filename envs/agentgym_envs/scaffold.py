"""Writes the files of a new environment: its module, a training config and a test.

The files work as they are: the environment passes `check`, and the config trains a small policy.
"""

import importlib.util
import keyword
import pathlib

from agentgym_envs import data_files
from agentgym_envs.registry import ENVIRONMENTS

COMMANDS = ("check", "demonstrations", "new", "prepare")  # of `python -m agentgym_envs`


def write(name: str, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the three files of an environment and returns their paths.

    Raises:
      ValueError: The name is no name of a new module.
      FileExistsError: One of the files exists; nothing was written.
      OSError: The files cannot be written; none is left.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or not name.islower():
        raise ValueError(f"{name!r} is no name of a module; use small letters, digits and _")
    if name in ENVIRONMENTS:
        raise ValueError(f"{name!r} is an environment of this project; choose another name")
    if name in COMMANDS:
        raise ValueError(f"{name!r} is a command of agentgym_envs; choose another name")
    templates = data_files.beside(__file__)
    paths = [folder / file.format(name=name) for file in templates]
    for path in paths:
        if path.exists():
            raise FileExistsError(f"{path} exists already; choose another name or --folder")
    found = importlib.util.find_spec(name)
    if found is not None and found.origin is not None:  # a folder alone has no origin
        raise ValueError(f"Python has a module {name!r} already; choose another name")
    title = "".join(word.capitalize() for word in name.split("_")) or name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for path, text in zip(paths, templates.values(), strict=True):
            path.write_text(text.format(name=name, title=title), encoding="utf-8")
    except OSError as error:
        for path in paths:
            path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(folder)) from error
    return paths
