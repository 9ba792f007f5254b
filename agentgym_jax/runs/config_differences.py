"""Differences between two configs, by dotted key."""

import json
from collections.abc import Mapping
from typing import Any


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens `{"a": {"b": 1}}` to `{"a.b": 1}`; an empty section is kept as a value."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def config_differences(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, tuple[str, str]]:
    """Returns the dotted keys whose values differ, with both values as JSON or `absent`."""
    flat_old, flat_new = flatten(old), flatten(new)

    def show(flat: Mapping[str, Any], key: str) -> str:
        return json.dumps(flat[key]) if key in flat else "absent"

    return {
        key: (show(flat_old, key), show(flat_new, key))
        for key in sorted(flat_old.keys() | flat_new.keys())
        if key not in flat_old or key not in flat_new or flat_old[key] != flat_new[key]
    }
