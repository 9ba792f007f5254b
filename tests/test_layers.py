"""The import levels of docs/design.md, read from the source without importing it."""

import ast
import functools
import pathlib
import sys

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

# Maps a package or module of agentgym_jax to its level; the longest prefix decides. Modules of a
# level may import each other, but without cycles.
LEVELS = {
    "trajectory": 1,
    "batch": 1,
    "text": 1,
    "sharding": 1,
    "algorithms": 1,
    "bucket": 1,
    "run_folder": 1,
    "processes": 1,
    "cluster": 1,
    "telemetry": 1,
    "native": 1,
    "limits": 1,
    "frames": 1,
    "interrupts": 1,
    "web_access": 1,
    "models": 2,
    "client": 2,
    "traces": 2,
    "data": 3,
    "learner": 3,
    "sampling": 3,
    "serving": 3,
    "rollout": 4,
    "programs": 4,
    "judge": 4,
    "training_api": 4,
    "jobs.config": 4,
    "evaluation": 5,
    "viewer": 5,
    "jobs": 6,
    "loaded_run": 6,
    "planning": 7,
    "plan": 7,
    "configs": 7,
    "config_files": 7,
    "process_setup": 7,
    "command_setup": 7,
    "api": 7,
    "startup": 7,
    "command_line": 7,
    "train": 7,
    "evaluate": 7,
    "results": 7,
    "scripts": 7,
    "__main__": 7,
    "export": 7,
    "view": 7,
    "serve": 7,
    "tinker": 7,
    "replay": 7,
    "sweeps": 7,
    "sweep": 7,
}
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


class _WithoutTypeChecking(ast.NodeTransformer):
    """Removes the statements that only a type checker reads."""

    def visit_If(self, node):
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_for_types else self.generic_visit(node)


@functools.cache
def nodes(path):
    """Returns all nodes of a file's syntax tree, without statements for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return list(ast.walk(_WithoutTypeChecking().visit(tree)))


@functools.cache
def imports(path):
    """Returns each import statement of a file with the name of a module that it loads."""
    return [(node, name) for node in nodes(path) for name in imported(node, KNOWN)]


def within(name, package):
    return name == package or name.startswith(f"{package}.")


FILES = sources(TRAINING) + sources(ENVIRONMENTS)
KNOWN = {module_name(path) for path in FILES}
TRAINING_FILES = [p for p in sources(TRAINING) if module_name(p) != "agentgym_jax"]


def part(name):
    return name.split(".")[1]


def level(name):
    """Returns the level of the longest prefix of a module in LEVELS, or None without a prefix."""
    parts = name.split(".")[1:]
    prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((LEVELS[prefix] for prefix in prefixes if prefix in LEVELS), None)


def targets(paths):
    """Returns the importing module, the place and the imported module of each import of files."""
    return [
        (module_name(path), f"{path}:{node.lineno}: {target}", target)
        for path in paths
        for node, target in imports(path)
    ]


def test_every_module_has_a_level():
    unknown = [name for name in map(module_name, TRAINING_FILES) if level(name) is None]
    assert not unknown, "give them levels in docs/design.md and in this table"


def test_no_module_imports_from_higher_levels():
    wrong = [
        f"{where}: level {level(name)} imports level {level(target)}"
        for name, where, target in targets(TRAINING_FILES)
        if target.startswith("agentgym_jax.") and level(target) > level(name)
    ]
    assert not wrong, "\n".join(wrong)


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
    functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    for function in (node for node in nodes(path) if isinstance(node, functions)):
        for node in ast.walk(function):
            ours = [name for name in imported(node, KNOWN) if name.split(".")[0] in OURS]
            if ours and module_name(path) not in LATE_IMPORTS:
                yield f"{path}:{node.lineno}: {ours[0]} imported inside a function"
    for node in nodes(path):
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
