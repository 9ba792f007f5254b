"""Facts about AgentGym's fifteen original servers, from the tables in this folder.

servers.toml has the facts, functions.toml the actions of some environments as functions, and
instructions.toml the texts for the agent.
"""

import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any

from agentgym_jax.client.actions import ActionFormat, ActionRules
from agentgym_jax.client.calls import Function
from agentgym_jax.client.instructions import REACT_REPLY, with_functions
from agentgym_jax.client.server_facts import MAX_TEXT_CHARACTERS, ServerFacts, Success


def _read(name: str) -> dict[str, Any]:
    path = pathlib.Path(__file__).with_name(f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _instructions() -> dict[str, str]:
    """Returns the texts by environment, with the parts that several texts share."""
    tables = _read("instructions")
    texts = dict(tables["texts"])
    for part, shared in {**tables["parts"], "react_reply": REACT_REPLY}.items():
        texts = {name: text.replace(f"{{{part}}}", shared) for name, text in texts.items()}
    return texts


def _originals() -> dict[str, ServerFacts]:
    tables, functions, texts = _read("servers"), _read("functions"), _instructions()
    tools = {name: tables["tool_server"] | row for name, row in tables["tool_servers"].items()}
    found = {}
    for name, row in (tables["servers"] | tools).items():
        rules = {"max_characters": MAX_TEXT_CHARACTERS} | tables["rules"][row["actions"]]
        facts = row | {
            "actions": ActionRules(**rules | {"format": ActionFormat(rules["format"])}),
            "succeeded": Success(**row.get("succeeded", {})),
            "instructions": texts[name],
        }
        facts |= {key: tuple(row[key]) for key in ("reset_fields", "score_fields") if key in row}
        if name in functions:
            own = {key: Function(does, tuple(t)) for key, (does, *t) in functions[name].items()}
            text = with_functions(texts[name], own, ActionFormat.REACT)
            facts |= {"functions": own, "world": texts[name], "instructions": text}
        found[name] = ServerFacts(environment=name, **facts)
    return found


ORIGINALS: Mapping[str, ServerFacts] = _originals()
