"""Paths, names and readers of built corpora.

A corpus is a folder `<data>/searchqa/<version>/` with passages.jsonl, questions.jsonl and
metadata.json. The version is derived from RECIPE and the versions of the packages. RECIPE changes
with the code that writes passages and questions, so equal versions have the same bytes on every
machine.
"""

import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from agentgym_envs.data_folder import data_folder
from agentgym_facts.sources import SOURCES

# Version of the code that generates the corpus. Raise it when the same packages give other rows.
RECIPE = 2
PASSAGES = "passages.jsonl"
QUESTIONS = "questions.jsonl"
METADATA = "metadata.json"
COMMAND = "python -m agentgym_facts build"

# SHA-256 of the files of the default version. A build of this version with other digests fails.
PINNED: Mapping[str, str] = {
    PASSAGES: "22835009091571fa3720fc76f88790bb68f95086a172965069b036224b3843a8",
    QUESTIONS: "9bb6887bd9b1c2e1123726f2dd9984a5c7e20442806650bab03484b299f27abb",
}


def corpora_folder() -> pathlib.Path:
    """Returns the folder that contains one folder for each version of the corpus."""
    return data_folder() / "searchqa"


def version_of(inputs: Mapping[str, str]) -> str:
    """Returns the version of a corpus: RECIPE, a hyphen and 12 hexadecimal digits."""
    named = json.dumps(dict(sorted(inputs.items())))
    return f"{RECIPE}-{hashlib.sha256(named.encode()).hexdigest()[:12]}"


def default_version() -> str:
    """Returns the version of the corpus of the pinned packages, which need not be installed."""
    return version_of({source.distribution: source.version for source in SOURCES.values()})


def default_folder() -> pathlib.Path:
    """Returns the folder of the default corpus."""
    return corpora_folder() / default_version()


def is_built(folder: pathlib.Path) -> bool:
    """Returns True if a folder contains a corpus; a corpus is always complete, because builds are
    atomic.
    """
    return (folder / METADATA).is_file()


def read_rows(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of passages.jsonl or questions.jsonl."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def read_metadata(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the metadata of a corpus."""
    return json.loads((folder / METADATA).read_text(encoding="utf-8"))


def file_digest(path: pathlib.Path) -> str:
    """Returns the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def faults(folder: pathlib.Path) -> list[str]:
    """Returns descriptions of the damaged files of a built corpus; empty if all files are
    unchanged.
    """
    if not is_built(folder):
        return [f"there is no corpus in {folder}"]
    found = []
    for name, stated in read_metadata(folder)["files"].items():
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif file_digest(path) != stated["sha256"]:
            found.append(
                f"{name} has changed since it was built: its SHA-256 differs from {METADATA}"
            )
        elif folder.name == default_version() and stated["sha256"] != PINNED[name]:
            found.append(
                f"{name} is not the default corpus: its SHA-256 differs from the pinned one"
            )
    return found
