"""Facts about a house, and queries over them."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence

Atom = tuple[str, tuple[str, ...]]  # predicate and arguments, all in lower case
Binding = Mapping[str, str]


class Facts:
    """A set of facts that changes with the actions.

    A fact that an action has made false is also kept as a fact `not_..`, because the texts of
    ALFWorld's grammar ask for it.
    """

    def __init__(self, atoms: Iterable[Atom]):
        self._of: dict[str, set[tuple[str, ...]]] = collections.defaultdict(set)
        for name, arguments in atoms:
            self._of[name].add(arguments)

    def has(self, name: str, *arguments: str) -> bool:
        """Returns True if the fact is true."""
        return name in self._of and arguments in self._of[name]

    def of(self, name: str) -> list[tuple[str, ...]]:
        """Returns the arguments of all facts of a predicate, sorted."""
        return sorted(self._of[name]) if name in self._of else []

    def set(self, name: str, arguments: tuple[str, ...], is_true: bool) -> None:
        """Makes a fact true or false."""
        added, removed = (name, f"not_{name}") if is_true else (f"not_{name}", name)
        self._of[added].add(arguments)
        self._of[removed].discard(arguments)

    def one(self, name: str, first: str) -> str:
        """Returns the second argument of the first fact `name(first, ..)`; empty without one."""
        return next((rest[0] for head, *rest in self.of(name) if head == first), "")

    def matches(self, atoms: Sequence[Atom], bound: Binding) -> Iterator[dict[str, str]]:
        """Yields the bindings of variables for which all atoms are true.

        As in TextWorld, the bindings have the order of the sorted facts, and two variables never
        have the same value.

        Args:
          atoms: Predicates with variables as arguments.
          bound: Variables that already have a value.
        """
        if not atoms:
            yield dict(bound)
            return
        name, variables = atoms[0]
        for arguments in self.of(name):
            extended = dict(bound)
            for variable, value in zip(variables, arguments, strict=True):
                if variable not in extended and value not in extended.values():
                    extended[variable] = value
                elif variable not in extended or extended[variable] != value:
                    break
            else:
                yield from self.matches(atoms[1:], extended)
