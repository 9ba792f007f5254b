"""Completeness of docs/config.md, which must list every config key that the code reads.

Run as a program, this file writes docs/config.md.
"""

import importlib
import inspect
import pathlib

import pytest
from absl import flags
from ml_collections import config_flags

from agentgym_jax.algorithms import ALGORITHMS
from agentgym_jax.cli import startup
from agentgym_jax.config.config_files import load_config, resolve
from agentgym_jax.config.sections import plain
from configs import common
from tests.config import config_page

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "config.md"


def defaults():
    """Returns the values of each section in the shipped configs by dotted section name."""
    base = plain(common.base())
    found = {"": base, **{name: part for name, part in base.items() if isinstance(part, dict)}}
    for job in ("sft.trajectories", "dpo.trajectories", "agentevol.textcraft_babyai"):
        name = job.partition(".")[0]
        found[name] = plain(importlib.import_module(f"configs.{job}").get_config())[name]
    found["dpo.pairing"] = found["dpo"]["pairing"]
    found["endpoint"] = plain(common.evaluation_base())["endpoint"]
    found["environments.NAME"] = common.environment()
    # Nested sections are shown as "...", because other tables list their keys.
    for job in ("sft", "dpo", "agentevol"):
        for key, value in found[job].items():
            if isinstance(value, dict) and value:
                found[job] = found[job] | {key: "..."}
    found["algorithm"] = {
        k: "..." if isinstance(v, dict) else v for k, v in base["algorithm"].items()
    }
    return found


def test_no_base_config_value_repeats_a_code_default():
    base = plain(common.base()) | {"endpoint": plain(common.evaluation_base())["endpoint"]}
    for section, (reader, _) in config_page.READERS.items():
        given = base if not section else base.get(section, {})
        parameters = inspect.signature(reader).parameters
        with_default = {n for n, p in parameters.items() if p.default is not p.empty}
        with_default -= {"lora"}  # in the config, so that a flag can add adapters
        assert not with_default & set(given), f"{section}: {with_default & set(given)}"
    for name in common.ALGORITHMS:
        made, row = common.make_algorithm(name, length=64), ALGORITHMS[name]
        for part, function in (("advantage", row.advantage), ("loss", row.loss)):
            parameters = inspect.signature(function).parameters
            assert all(parameters[key].default is inspect.Parameter.empty for key in made[part])


def leaves(section, name=""):
    """Yields the dotted names of all keys that have a value in a config."""
    for key, value in section.items():
        path = f"{name}.{key}" if name else key
        yield path
        if isinstance(value, dict) and f"{path}" in config_page.READERS:
            yield from leaves(value, path)


def test_the_page_equals_the_code():
    assert PAGE.read_text(encoding="utf-8") == config_page.render_page(defaults()), (
        "docs/config.md is stale: python tests/config/test_config_keys.py writes it"
    )


def test_every_key_of_the_base_config_is_listed_with_its_meaning():
    listed = {key.name: key for key in config_page.list_keys(defaults())}
    sections = set(config_page.READERS) | {"horizon", "environments"}
    missing = [name for name in leaves(plain(common.base())) if name not in {*listed, *sections}]
    assert not missing
    assert not [name for name, key in listed.items() if len(key.meaning) < 10]
    assert not [name for name, key in listed.items() if key.values == "a value"]


def test_keys_of_durations_have_the_unit_seconds():
    timed = [key for key in config_page.list_keys(defaults()) if key.name.endswith("_s")]
    assert len(timed) > 5 and {key.unit for key in timed} == {"seconds"}


def value_of(key):
    """Returns a value of a key as it is typed and as the config has it."""
    words = key.values
    for beginning, text, value in (
        ("one of ", *[words.removeprefix("one of ").split(", ")[-1].split(" or ")[-1]] * 2),
        ("a text", "abc", "abc"),
        ("a whole number", "3", 3),
        ("a number", "0.5", 0.5),
        ("True or False", "true", True),
        ("a sequence", "('q',)", ("q",)),
    ):
        if words.startswith(beginning):
            return text, value
    return None


def set_by_flag(monkeypatch, config, *overrides):
    """Returns the config of a command line."""
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", config, lock_config=True, flag_values=values)
    flags.DEFINE_bool("keys", False, "", flag_values=values)
    monkeypatch.setattr(startup.flags, "FLAGS", values)
    monkeypatch.setattr(startup, "KEYS", values["keys"])
    startup._parse_flags(["train", f"--config={config}", *overrides], ())
    return values["config"].value.to_dict()


KEYS = [key for key in config_page.list_keys(defaults()) if "NAME" not in key.name]


@pytest.mark.parametrize("config", ["configs/quickstart.py", "configs/sft/trajectories.py"])
def test_every_key_of_the_page_can_be_set_by_a_flag(monkeypatch, config):
    base = plain(load_config(config))
    tried = 0
    for key in KEYS:
        found = base
        for part in key.name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        typed = value_of(key)
        if typed is None or isinstance(found, dict):  # a section; its own keys are set
            continue
        text, value = typed
        if isinstance(found, tuple):
            text, value = ("('q',)", ("q",)) if found and isinstance(found[0], str) else ("()", ())
        found = set_by_flag(monkeypatch, config, f"--config.{key.name}={text}")
        if key.name.startswith("guards."):  # options in a text
            assert found["guards"] == f"{key.name.removeprefix('guards.')}={text}"
            continue
        for part in key.name.split("."):
            found = found[part]
        assert found == value, key.name
        tried += 1
    assert tried > 150


@pytest.mark.parametrize("name", ["model.attention", "sampler.draft_tokens", "judge.model"])
def test_a_key_that_a_config_lacks_can_be_set_by_a_mapping(name):
    resolved = resolve("configs/quickstart.py", {name: "cudnn"})
    section, key = name.split(".")
    assert resolved[section][key] == "cudnn"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cudnn", "cudnn"),
        ("4", 4),
        ("1e-3", 1e-3),
        ("False", False),
        ("'4'", "4"),
        ("(1, 2)", (1, 2)),
        ("None", None),
        ("{'a': 1}", "{'a': 1}"),
        ("a b=c", "a b=c"),
    ],
)
def test_the_value_of_a_key_that_a_config_lacks_is_a_literal_or_a_text(monkeypatch, text, value):
    for override in ([f"--config.extra.key={text}"], ["--config.extra.key", text]):
        found = set_by_flag(monkeypatch, "configs/quickstart.py", *override)
        assert found["extra"] == {"key": value} and type(found["extra"]["key"]) is type(value)
        overrides = config_flags.get_override_values(startup.flags.FLAGS["config"])
        assert overrides == {"extra.key": value}  # `evaluate` prefers them to a run's values


if __name__ == "__main__":
    PAGE.write_text(config_page.render_page(defaults()), encoding="utf-8")
