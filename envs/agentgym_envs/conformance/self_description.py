"""Properties of an environment's self-description: spec and task manifest."""

import collections
import json
import math
import re

from agentgym_envs.base import manifest
from agentgym_envs.base.protocol import check_tools
from agentgym_envs.conformance.subject import Subject, Violation, shorten


def the_manifest_lists_the_tasks_in_order(subject: Subject) -> str:
    """Checks the manifest: indices 0, 1, 2, ..., known splits, JSON values, number of tasks."""
    tasks = subject.served.tasks()
    try:
        manifest.check(tasks)
        text = manifest.canonical_json(tasks)
    except (ValueError, TypeError, KeyError) as error:
        raise Violation(f"the manifest: {type(error).__name__}: {error}") from error
    if json.loads(text) != [dict(task) for task in tasks]:
        raise Violation("the manifest changes on its way through JSON: use JSON types")
    total = subject.served.spec.num_tasks
    if not 0 < len(tasks) <= total:
        raise Violation(f"the manifest has {len(tasks)} tasks, expected 1 .. num_tasks = {total}")
    splits = collections.Counter(task["split"] for task in tasks)
    return ", ".join(f"{count} {split}" for split, count in splits.items())


def the_manifest_hash_equals_the_one_in_the_spec(subject: Subject) -> str:
    """Checks that `manifest_sha256` equals `manifest.sha256` of the manifest."""
    found = manifest.sha256(subject.served.tasks())
    expected = subject.served.spec.manifest_sha256
    if found != expected:
        raise Violation(f"the manifest has the hash {found}, the spec says {expected}")
    return found[:12]


def no_task_is_in_two_splits(subject: Subject) -> str:
    """Checks that no two tasks of different splits have the same facts."""
    seen: dict[str, tuple[int, str]] = {}
    compared = 0
    for task in subject.served.tasks():
        facts = {k: v for k, v in task.items() if k not in ("data_idx", "split")}
        if not facts:
            continue
        compared += 1
        key = json.dumps(facts, sort_keys=True)
        index, split = seen.setdefault(key, (task["data_idx"], task["split"]))
        if split != task["split"]:
            raise Violation(
                f"task {index} ({split}) and task {task['data_idx']} ({task['split']}) are the "
                f"same: {shorten(key)}"
            )
    return f"by the facts of {compared} tasks" if compared else "the manifest has no facts"


def the_spec_is_complete_and_valid(subject: Subject) -> str:
    """Checks the spec: nonempty texts, plausible numbers, and a valid expression for rejections."""
    spec = subject.served.spec
    for field in ("name", "version", "instructions"):
        value = getattr(spec, field)
        if not isinstance(value, str) or not value.strip():
            raise Violation(f"spec.{field} is {value!r}, expected a text that is not empty")
    if re.search(r"[\s/]", spec.name):
        raise Violation(f"spec.name is {spec.name!r}, expected no white space and no slash")
    if spec.action_format not in ("react", "raw", "tools"):
        raise Violation(
            f"spec.action_format is {spec.action_format!r}, expected react, raw or tools"
        )
    if bool(spec.tools) != (spec.action_format == "tools"):
        raise Violation(
            f"spec.action_format is {spec.action_format!r} and there are {len(spec.tools)} tools: "
            "environments with tools, and no others, have the format tools"
        )
    try:
        check_tools(spec.tools)
    except ValueError as error:
        raise Violation(f"spec.tools: {error}") from error
    if type(spec.max_turns) is not int or spec.max_turns < 1:
        raise Violation(f"spec.max_turns is {spec.max_turns!r}, expected at least 1")
    for field in ("success_score", "max_score"):
        value = getattr(spec, field)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise Violation(f"spec.{field} is {value!r}, expected a finite number")
    if not 0 < spec.success_score <= spec.max_score:
        raise Violation(
            f"spec.success_score is {spec.success_score} and spec.max_score {spec.max_score}, "
            "expected 0 < success_score <= max_score"
        )
    try:
        re.compile(spec.refusal)
    except re.error as error:
        raise Violation(
            f"spec.refusal {spec.refusal!r} is no regular expression: {error}"
        ) from None
    if spec.refusal and re.match(spec.refusal, ""):
        raise Violation(f"spec.refusal {spec.refusal!r} fits every text")
    return f"{spec.name} {spec.version}"
