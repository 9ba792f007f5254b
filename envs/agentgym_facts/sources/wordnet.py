"""WordNet: people, places and events with one gloss each. The default corpus does not contain it.

The user provides the file `data.noun` of WordNet 3.x, which is in Debian's package wordnet-base.
"""

import collections
import dataclasses
import pathlib

from agentgym_facts.questions.starts import Start
from agentgym_facts.text import clean, mentions_name, words
from agentgym_facts.world import World

SOURCE = "wordnet"
WHERE = "in Debian it is /usr/share/wordnet/data.noun of the package wordnet-base"


@dataclasses.dataclass(frozen=True)
class Instance:
    """A synset that denotes an individual, such as a particular river."""

    offset: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    wholes: tuple[str, ...]
    gloss: str


def read_instances(path: pathlib.Path) -> list[Instance]:
    """Returns all instances of a `data.noun` in file order (the format is described in wndb(5WN))."""
    synsets = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        if not line.startswith("  "):  # lines of the licence start with two spaces
            data, _, gloss = line.partition("|")
            fields = data.split()
            count = int(fields[3], 16)
            names = tuple(fields[4 + 2 * i].replace("_", " ") for i in range(count))
            at = 4 + 2 * count
            pointers = [
                (fields[at + 1 + 4 * i], fields[at + 2 + 4 * i]) for i in range(int(fields[at]))
            ]
            synsets[fields[0]] = (names, pointers, clean(gloss))
    instances = []
    for offset, (names, pointers, gloss) in synsets.items():
        kinds = tuple(synsets[to][0][0] for sign, to in pointers if sign == "@i")
        wholes = tuple(synsets[to][0][0] for sign, to in pointers if sign == "#p")
        if kinds:
            instances.append(Instance(offset, names, kinds, wholes, gloss))
    return instances


def add_passages(path: pathlib.Path, world: World) -> list[Start]:
    """Adds one passage per instance; returns a start for each place that is in exactly one country."""
    instances = read_instances(path)
    names = collections.Counter(words(name) for one in instances for name in set(one.names))
    countries = {words(c.name): c for c in world.countries.values()}
    found = []
    for one in instances:
        passage = world.book.add(f"wordnet-{one.offset}", one.names[0], _text(one), SOURCE)
        holders = {words(whole) for whole in one.wholes} & set(countries)
        name = one.names[0]
        if len(one.wholes) != 1 or len(holders) != 1 or names[words(name)] > 1:
            continue
        country = countries[holders.pop()]
        if not mentions_name(name, country.name) and '"' not in name:
            found.append(Start("place_country", name, "", passage, country, passage))
    return found


def _text(one: Instance) -> str:
    other = f" (also {', '.join(one.names[1:4])})" if len(one.names) > 1 else ""
    text = f"{one.names[0]}{other} is a {' and a '.join(one.kinds)}: {one.gloss}."
    return f"{text} It is part of {', '.join(one.wholes)}." if one.wholes else text
