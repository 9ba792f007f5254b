"""Texts of a game, from its grammar in the format of TextWorld's PDDL games (`.twl2`).

A rule has a right side and perhaps a condition. The right side refers to other rules (`#rule#`), to
names (`{o.name}`), and to lists of all matches of a query (`[{o.name | holds(a:agent, o:object)}]`).
"""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping

from agentgym_envs.alfworld.facts import Atom, Binding, Facts

_BLOCK = re.compile(r'"""(.*?)"""', re.DOTALL)
_ACTION = re.compile(
    r'action\s+(\w+)\s*\{\s*template\s*::\s*"(.*?)"\s*;\s*feedback\s*::\s*"(.*?)"\s*;', re.DOTALL
)
_SYMBOL = re.compile(r"\[\{(.*?)\|(.*?)\}\]|#([^#]+)#|\{([^{}]*)\}")
_CALL = re.compile(r"(\w+)\(([^()]*)\)")
_WORDS = {"indefinite": "a", "definite": "the"}


class GrammarError(ValueError):
    """Error for a grammar that has an unknown form."""


@dataclasses.dataclass(frozen=True)
class Grammar:
    """Rules and command templates of a game.

    Attributes:
      rules: For each rule name the pairs of condition and right side; the first that fits is used.
      templates: For each action its command, such as `open {r}`.
      feedback: For each action the text after it, with references to rules.
    """

    rules: Mapping[str, list[tuple[list[Atom], str]]]
    templates: Mapping[str, str]
    feedback: Mapping[str, str]

    def text(self, source: str, facts: Facts, names: Mapping[str, str], bound: Binding) -> str:
        """Returns a text in which all references are replaced.

        Raises:
          GrammarError: A rule does not exist or an expression has an unknown form.
        """

        def replace(found: re.Match[str]) -> str:
            expression, query, rule, value = found.groups()
            if expression is not None:
                items = [
                    self._value(expression, facts, names, match)
                    for match in facts.matches(_atoms(query), bound)
                ]
                return self._list(items, facts, names, bound)
            if rule is not None:
                return self.text(self._right_side(rule, facts, bound), facts, names, bound)
            return self._value(value, facts, names, bound)

        return _SYMBOL.sub(replace, source).replace("\\n", "\n")

    def command(self, action: str, names: Mapping[str, str], bound: Binding) -> str:
        """Returns the command of an action, such as `open drawer 1`."""
        return re.sub(r"\{(\w+)\}", lambda found: names[bound[found[1]]], self.templates[action])

    def _right_side(self, rule: str, facts: Facts, bound: Binding) -> str:
        for condition, right_side in self.rules[rule] if rule in self.rules else ():
            if any(True for _ in facts.matches(condition, bound)):
                return right_side
        raise GrammarError(f"the grammar has no rule for #{rule}# in this state")

    def _value(
        self, expression: str, facts: Facts, names: Mapping[str, str], bound: Binding
    ) -> str:
        if "#" in expression:
            return self.text(expression.strip(), facts, names, bound)
        text = ""
        for term in re.findall(r"'[^']*'|[^'+]+", expression):
            variable, _, field = term.strip().partition(" or ")[0].partition(".")
            if term.startswith("'"):
                text += term[1:-1]
            elif field in _WORDS:
                text += _WORDS[field]
            elif field == "name" and variable in bound:
                text += names[bound[variable]]
            elif term.strip():
                raise GrammarError(f"the grammar has an expression of unknown form: {expression}")
        return text

    def _list(
        self, items: list[str], facts: Facts, names: Mapping[str, str], bound: Binding
    ) -> str:
        if not items:
            return self.text("#list_empty#", facts, names, bound)
        if len(items) == 1:
            return items[0]
        comma, last = (
            self.text(f"#{rule}#", facts, names, bound)
            for rule in ("list_separator", "list_last_separator")
        )
        return comma.join(items[:-1]) + last + items[-1]


@functools.lru_cache(maxsize=8)
def read_rules(source: str) -> Grammar:
    """Reads a grammar.

    Raises:
      GrammarError: The rules are no JSON.
    """
    rules: dict[str, list[tuple[list[Atom], str]]] = {}
    for block in _BLOCK.findall(source):
        lines = [line for line in block.split("\n") if not line.lstrip().startswith("#")]
        try:
            parsed = json.loads("\n".join(lines))
        except ValueError as error:
            raise GrammarError(f"a block of the grammar is no JSON: {error}") from None
        for name, alternatives in parsed.items():
            rules.setdefault(name, []).extend(
                (_atoms(rule["condition"] if "condition" in rule else ""), rule["rhs"])
                for rule in alternatives
            )
    actions = _ACTION.findall(source)
    return Grammar(
        rules,
        # `go to [{r.name | ..}]` names the receptacle that the action has as its argument
        {name.lower(): re.sub(r"\[\{(\w+).*?\}\]", r"{\1}", form) for name, form, _ in actions},
        {name.lower(): feedback for name, _, feedback in actions},
    )


def read_grammar(source: str, task: str) -> Grammar:
    """Reads a grammar whose task is still open (`UNKNOWN GOAL`) and states the task in it."""
    grammar = read_rules(source)
    stated: list[tuple[list[Atom], str]] = [([], f"Your task is to: {task}.")]
    return dataclasses.replace(grammar, rules={**grammar.rules, "task": stated})


@functools.lru_cache(maxsize=1024)
def _atoms(query: str) -> list[Atom]:
    """Reads a query such as `openable(r:receptacle) & opened(r:receptacle)`."""
    return [
        (name, tuple(part.partition(":")[0].strip() for part in variables.split(",")))
        for name, variables in _CALL.findall(query)
    ]
