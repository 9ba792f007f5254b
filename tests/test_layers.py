"""The floors and rooms of docs/design.md, read from the source without importing it."""

import ast
import collections
import functools
import pathlib
import sys

from tests.imports import import_statements

ROOT = pathlib.Path(__file__).parents[1]
TRAINING = ROOT / "agentgym_jax"
ENVIRONMENTS = ROOT / "envs"

OURS = ("agentgym_jax", "agentgym_envs", "agentgym_facts", "agentgym_sites", "agentgym_verifiers")
STANDARD = sys.stdlib_module_names
BANNED_IN_ENVIRONMENTS = {"jax", "jaxlib", "flax", "optax", "orbax", "torch", "agentgym_jax"}
# Modules of deep search's dense engine, which are imported only if a user chooses this engine.
MAY_USE_JAX = {
    "agentgym_envs.searchqa.engines.dense",
    "agentgym_envs.searchqa.engines.encoder",
}

# Rooms of agentgym_jax by floor, from the ground. A room imports only rooms of lower floors, and on
# its own floor only those to its left. Modules outside the rooms are commands, as `cli` is. `configs`
# is no room: it has the shipped config files, which `config` finds and which use `config`.
FLOORS = {
    "values": ("algorithms", "checks", "episodes", "mesh", "text", "runs", "telemetry", "traces"),
    "parts": ("native", "models", "client", "data", "sampling"),
    "engines": ("learner", "serving", "training_api", "rollout", "judge", "programs"),
    "jobs": ("config", "evaluation", "viewer", "jobs", "supervised", "rl", "training"),
    "many runs": ("planning", "replays", "sweeps"),
    "commands": ("cli",),
}
ROOMS = [room for floor in FLOORS.values() for room in floor]
# Maps each package to the packages that it may import, besides the standard library and itself.
ONLY = {
    "algorithms": {"jax", "chex", "agentgym_jax.algorithms"},
}
# Maps each module that may run an environment in this process to the modules that it may import for
# this purpose.
CALLERS = {
    "agentgym_jax.client.in_process": {
        "agentgym_envs.base.in_process",
        "agentgym_envs.base.environment",
        "agentgym_envs.base.served",
        "agentgym_envs.registry",
    },
}
FORBIDDEN = {
    "sampling": {"agentgym_jax.text", "agentgym_jax.client", "agentgym_envs"},
}


def sources(package):
    """Returns the Python files of agentgym_jax, or of the packages below envs/."""
    pattern = "agentgym_*/**/*.py" if package == ENVIRONMENTS else "**/*.py"
    return sorted(package.glob(pattern))


def module_name(path):
    relative = path.relative_to(ROOT / "envs" if ENVIRONMENTS in path.parents else ROOT)
    parts = relative.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node, known):
    """Returns the absolute names of the modules that an import statement loads."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        full = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if name in known else node.module for name in full]
    return []


@functools.cache
def imports(path):
    """Returns each import statement of a file with the name of a module that it loads."""
    return [(node, name) for node, _ in import_statements(path) for name in imported(node, KNOWN)]


def within(name, package):
    return name == package or name.startswith(f"{package}.")


FILES = sources(TRAINING) + sources(ENVIRONMENTS)
KNOWN = {module_name(path) for path in FILES}
TRAINING_FILES = [p for p in sources(TRAINING) if module_name(p) != "agentgym_jax"]


def part(name):
    return name.split(".")[1]


def room(name):
    """Returns the room of a module; commands outside the rooms belong to `cli`."""
    is_module = not (TRAINING / part(name)).is_dir()
    return "cli" if is_module else part(name)


def targets(paths):
    """Returns the importing module, the place and the imported module of each import of files."""
    return [
        (module_name(path), f"{path}:{node.lineno}: {target}", target)
        for path in paths
        for node, target in imports(path)
    ]


def test_every_folder_is_a_room():
    assert {room(name) for name in map(module_name, TRAINING_FILES)} == {*ROOMS, "configs"}


def test_no_room_imports_from_higher_floors_or_from_rooms_to_its_right():
    wrong = [
        f"{where}: {room(name)} must not import {room(target)}"
        for name, where, target in targets(TRAINING_FILES)
        if target.startswith("agentgym_jax.")
        and "configs" not in (room(name), room(target))
        and ROOMS.index(room(target)) > ROOMS.index(room(name))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_two_modules_have_the_same_file_name():
    names = collections.Counter(path.name for path in TRAINING_FILES if path.stem != "__init__")
    assert not [name for name, count in names.items() if count > 1]


def test_training_imports_only_the_protocol_of_the_environments():
    allowed = {"agentgym_envs.base.protocol", "agentgym_envs.base.extras"}
    wrong = [
        where
        for name, where, target in targets(TRAINING_FILES)
        if within(target, "agentgym_envs") and target not in allowed | CALLERS.get(name, set())
    ]
    assert not wrong, "\n".join(wrong)


def test_restricted_packages_import_only_allowed_packages():
    def is_allowed(top, target):
        root = target.split(".")[0]
        is_standard = root not in ("jax", "chex", "agentgym_jax") and root in STANDARD
        is_listed = any(within(target, package) for package in ONLY.get(top, ()))
        is_forbidden = any(within(target, package) for package in FORBIDDEN.get(top, ()))
        return not is_forbidden and (top not in ONLY or is_standard or is_listed)

    found = targets(TRAINING_FILES)
    wrong = [where for name, where, target in found if not is_allowed(part(name), target)]
    assert not wrong, "\n".join(wrong)


def test_environments_import_neither_jax_nor_training_code():
    wrong = [
        where
        for name, where, target in targets(sources(ENVIRONMENTS))
        if target.split(".")[0] in BANNED_IN_ENVIRONMENTS
        and not (name in MAY_USE_JAX and target.split(".")[0] in ("jax", "jaxlib"))
    ]
    assert not wrong, "\n".join(wrong)


def test_other_modules_do_not_import_the_modules_with_jax():
    for name, where, target in targets(FILES):
        assert name in MAY_USE_JAX or target not in MAY_USE_JAX, where


def test_the_shared_protocol_needs_only_the_standard_library():
    path = ENVIRONMENTS / "agentgym_envs" / "base" / "protocol.py"
    for node, target in imports(path):
        assert target.split(".")[0] in STANDARD, f"{path}:{node.lineno}: {target}"


# Modules with imports inside functions, and the reasons. An import cycle is never the reason;
# `test_there_are_no_import_cycles` also finds cycles through these imports.
LATE_IMPORTS = {
    "agentgym_envs.webarena.served": "missing packages are reported before they are imported",
    "agentgym_sites.shop.server": "Django is imported after its clock is set",
    "agentgym_sites.shop.build": "Django is imported after its clock is set",
    "agentgym_sites.forum.server": "Django is imported after its clock is set",
    "agentgym_sites.forum.build": "Django is imported after its clock is set",
    "agentgym_sites.trac.server": "Trac is imported after its clock is set",
}


def test_every_listed_module_with_late_imports_exists():
    assert LATE_IMPORTS.keys() <= {module_name(path) for path in FILES}


def late_or_relative(path):
    """Returns the places of a file's relative imports and of its imports inside functions."""
    for node, is_late in import_statements(path):
        ours = [name for name in imported(node, KNOWN) if name.split(".")[0] in OURS]
        if is_late and ours and module_name(path) not in LATE_IMPORTS:
            yield f"{path}:{node.lineno}: {ours[0]} imported inside a function"
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"{path}:{node.lineno}: relative import"


def test_imports_are_absolute_and_at_the_top_of_the_module():
    wrong = [place for path in FILES for place in late_or_relative(path)]
    assert not wrong, "\n".join(wrong)


def test_there_are_no_import_cycles():
    graph = {}
    for path in FILES:
        name = module_name(path)
        # The __init__ of a package runs first, but its imports are ignored here.
        graph[name] = {t for _, t in imports(path) if t in KNOWN and t != name}
    done, open_path = set(), []

    def visit(name):
        if name in done:
            return
        assert name not in open_path, " -> ".join([*open_path[open_path.index(name) :], name])
        open_path.append(name)
        for target in sorted(graph[name]):
            visit(target)
        open_path.pop()
        done.add(name)

    for name in sorted(graph):
        visit(name)
