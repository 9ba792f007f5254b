"""Where corpora lie, what they are called, and how they are read.

A corpus is a folder `<data>/searchqa/<version>/` with passages.jsonl, questions.jsonl and
metadata.json. Its version follows from what it is built of: RECIPE, which changes with the code
that writes passages and questions, and the versions of the packages. So two machines that have
the same version have the same bytes.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym_envs.base.environment import SetupError
from agentgym_envs.data_folder import data_folder
from agentgym_envs.searchqa.corpus.sources import SOURCES

# Changes whenever the same packages give other passages or questions.
RECIPE = 2
PASSAGES = "passages.jsonl"
QUESTIONS = "questions.jsonl"
METADATA = "metadata.json"
COMMAND = "python -m agentgym_envs.searchqa.corpus build"

# SHA-256 of what the default version is made of: a build that differs from it is not that version.
PINNED: Mapping[str, str] = {
    PASSAGES: "22835009091571fa3720fc76f88790bb68f95086a172965069b036224b3843a8",
    QUESTIONS: "9bb6887bd9b1c2e1123726f2dd9984a5c7e20442806650bab03484b299f27abb",
}


def corpora_folder() -> pathlib.Path:
    """The folder of all versions."""
    return data_folder() / "searchqa"


def version_of(inputs: Mapping[str, str]) -> str:
    """Version of a corpus: `1-` and 12 hexadecimal digits.

    Args:
      inputs: names of packages and of other inputs -> their versions or digests.
    """
    named = json.dumps(dict(sorted(inputs.items())))
    return f"{RECIPE}-{hashlib.sha256(named.encode()).hexdigest()[:12]}"


def default_version() -> str:
    """Version of the corpus of the pinned packages alone, whatever is installed."""
    return version_of({source.distribution: source.version for source in SOURCES.values()})


def default_folder() -> pathlib.Path:
    """Where the default corpus lies once it is built."""
    return corpora_folder() / default_version()


def is_built(folder: pathlib.Path) -> bool:
    """Whether a folder holds a corpus; a build puts it there as a whole or not at all."""
    return (folder / METADATA).is_file()


def require_default() -> pathlib.Path:
    """The folder of the default corpus.

    Raises:
      SetupError: it is not built.
    """
    folder = default_folder()
    if not is_built(folder):
        raise SetupError(
            f"the corpus {folder.name} is not built in {folder.parent}. Run: {COMMAND}"
        )
    return folder


def read_rows(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Rows of passages.jsonl or questions.jsonl."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def read_metadata(folder: pathlib.Path) -> dict[str, Any]:
    """What a corpus says of itself."""
    return json.loads((folder / METADATA).read_text(encoding="utf-8"))


def file_digest(path: pathlib.Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def faults(folder: pathlib.Path) -> list[str]:
    """What is wrong with a built corpus; empty if its files are those that were built."""
    if not is_built(folder):
        return [f"there is no corpus in {folder}"]
    found = []
    for name, stated in read_metadata(folder)["files"].items():
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif file_digest(path) != stated["sha256"]:
            found.append(f"{name} is not what was built: its SHA-256 differs from {METADATA}")
        elif folder.name == default_version() and stated["sha256"] != PINNED[name]:
            found.append(
                f"{name} is not the default corpus: its SHA-256 differs from the pinned one"
            )
    return found
