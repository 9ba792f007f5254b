"""docs/config.md lists every key of a config as the code reads it. As a program this file writes it."""

import importlib
import pathlib

from agentgym_jax.run import keys
from agentgym_jax.run.sections import plain
from configs import common

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "config.md"


def defaults():
    """Dotted section -> its values in the shipped configs."""
    base = plain(common.base())
    found = {"": base, **{name: part for name, part in base.items() if isinstance(part, dict)}}
    for job in ("sft.trajectories", "dpo.trajectories", "agentevol.textcraft_babyai"):
        name = job.partition(".")[0]
        found[name] = plain(importlib.import_module(f"configs.{job}").get_config())[name]
    found["dpo.pairing"] = found["dpo"]["pairing"]
    found["endpoint"] = plain(common.evaluation_base())["endpoint"]
    found["environments.NAME"] = common.environment()
    for job in ("sft", "dpo", "agentevol"):  # long sections, which other tables list
        for key, value in found[job].items():
            if isinstance(value, dict) and value:
                found[job] = found[job] | {key: "..."}
    found["algorithm"] = {
        k: "..." if isinstance(v, dict) else v for k, v in base["algorithm"].items()
    }
    return found


def leaves(section, name=""):
    """Dotted names of all keys with a value in a config."""
    for key, value in section.items():
        path = f"{name}.{key}" if name else key
        yield path
        if isinstance(value, dict) and f"{path}" in keys.READERS:
            yield from leaves(value, path)


def test_the_page_is_what_the_code_says():
    assert PAGE.read_text(encoding="utf-8") == keys.document(defaults()), (
        "docs/config.md is stale: python tests/test_config_keys.py writes it"
    )


def test_every_key_of_the_base_is_listed_with_its_meaning():
    listed = {key.name: key for key in keys.keys(defaults())}
    sections = set(keys.READERS) | {"horizon", "environments"}
    missing = [name for name in leaves(plain(common.base())) if name not in {*listed, *sections}]
    assert not missing
    assert not [name for name, key in listed.items() if len(key.meaning) < 10]
    assert not [name for name, key in listed.items() if key.values == "a value"]


def test_the_unit_of_a_time_is_in_the_list():
    timed = [key for key in keys.keys(defaults()) if key.name.endswith("_s")]
    assert len(timed) > 5 and {key.unit for key in timed} == {"seconds"}


if __name__ == "__main__":
    PAGE.write_text(keys.document(defaults()), encoding="utf-8")
