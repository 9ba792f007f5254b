"""Data of the packages in TOML files, each beside the module that uses it and named like it."""

import pathlib
import tomllib
from typing import Any


def beside(module_file: str) -> dict[str, Any]:
    """Returns the content of the TOML file of a module, which is given by its `__file__`."""
    return tomllib.loads(pathlib.Path(module_file).with_suffix(".toml").read_text(encoding="utf-8"))
