"""200 tasks by recipe: eight families with 25 tasks each. A task depends only on its name."""

import functools
import json
import pathlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgym_envs.terminals import programs
from agentgym_envs.terminals.git_objects import repository
from agentgym_envs.terminals.tasks import File, Task

PER_FAMILY = 25
APP = "/app"
_WORDS = (
    "amber basin cedar delta ember fjord grove harbor island juniper kestrel lagoon meadow nectar "
    "orchid pebble quartz river saffron timber umber valley willow yarrow zephyr"
).split()
_IDENTITY = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "Agent"), ("EMAIL", "agent@example.org"))
}
_TEST = "#!/bin/bash\nexec python3 -I /tests/check.py\n"


@functools.cache
def recipe_tasks() -> tuple[Task, ...]:
    """Returns all tasks by recipe."""
    return tuple(
        make(f"{family}/{number:02d}", random.Random(f"terminals {family} {number}"))
        for family, make in FAMILIES.items()
        for number in range(PER_FAMILY)
    )


def _task(
    name: str,
    instruction: str,
    files: Mapping[str, str] | Mapping[str, File],
    checks: Sequence[Mapping[str, Any]],
    solution: str,
    variables: Mapping[str, str] | None = None,
) -> Task:
    checker = pathlib.Path(__file__).with_name("checker.py").read_bytes()
    return Task(
        name=name,
        instruction=instruction,
        files={
            path: file if isinstance(file, File) else File(file.encode())
            for path, file in files.items()
        },
        tests={
            "test.sh": File(_TEST.encode(), 0o755),
            "check.py": File(checker),
            "expected.json": File(json.dumps(checks).encode()),
        },
        solution=solution,
        variables=variables or {},
    )


def count_lines(name: str, rng: random.Random) -> Task:
    """Count the lines of a log with one level from one component."""
    level = rng.choice(("INFO", "WARN", "ERROR", "DEBUG"))
    components = rng.sample(_WORDS, 4)
    wanted = components[0]
    lines = [
        f"2026-0{rng.randint(1, 9)}-{rng.randint(10, 28)} "
        f"{rng.choice(('INFO', 'WARN', 'ERROR', 'DEBUG'))} {rng.choice(components)} "
        f"took {rng.randint(1, 900)} ms"
        for _ in range(rng.randint(80, 200))
    ]
    number = sum(line.split()[1:3] == [level, wanted] for line in lines)
    return _task(
        name,
        f"The file /app/server.log has lines of the form `date level component message`. Write the "
        f"number of lines with the level {level} and the component {wanted} to /app/answer.txt.",
        {f"{APP}/server.log": "\n".join(lines) + "\n"},
        [{"kind": "file", "path": f"{APP}/answer.txt", "text": str(number)}],
        f"grep -c ' {level} {wanted} ' server.log > answer.txt",
    )


def sum_columns(name: str, rng: random.Random) -> Task:
    """Add up the amounts of a table by name."""
    names = rng.sample(_WORDS, rng.randint(4, 7))
    rows = [(rng.choice(names), rng.randint(1, 99)) for _ in range(rng.randint(30, 80))]
    column = rng.choice(("sold", "stock", "visits", "points"))
    totals = {key: sum(n for k, n in rows if k == key) for key in {k for k, _ in rows}}
    lines = [f"name,day,{column}", *(f"{k},{rng.randint(1, 31)},{n}" for k, n in rows)]
    report = "".join(f"{key},{totals[key]}\n" for key in sorted(totals))
    return _task(
        name,
        f"Add up the column `{column}` of /app/table.csv for each name. Write one line `name,total` "
        "per name to /app/totals.csv, sorted by name, without a header.",
        {f"{APP}/table.csv": "\n".join(lines) + "\n"},
        [{"kind": "file", "path": f"{APP}/totals.csv", "text": report}],
        "tail -n +2 table.csv | awk -F, '{t[$1]+=$3} END {for (n in t) print n \",\" t[n]}' "
        "| LC_ALL=C sort > totals.csv",
    )


def sort_files(name: str, rng: random.Random) -> Task:
    """Move files into a folder for each ending, and delete the temporary ones."""
    endings = rng.sample(("txt", "csv", "md", "log", "py", "cfg"), 3)
    names = rng.sample(_WORDS, rng.randint(8, 12))
    kept = {
        f"{word}.{endings[i % 3]}": f"{word} {rng.randint(1, 999)}\n"
        for i, word in enumerate(names)
    }
    rest = [word for word in _WORDS if word not in names]
    temporary = {f"{word}.tmp": "unused\n" for word in rng.sample(rest, 3)}
    moved = {f"{file.rpartition('.')[2]}/{file}": text for file, text in kept.items()}
    return _task(
        name,
        "Tidy the folder /app/inbox: delete all files that end in .tmp, and move each other file "
        "into a subfolder of /app/inbox with the name of its ending, such as /app/inbox/"
        f"{endings[0]}/{next(iter(kept)).partition('.')[0]}.{endings[0]}.",
        {f"{APP}/inbox/{file}": text for file, text in {**kept, **temporary}.items()},
        [{"kind": "tree", "path": f"{APP}/inbox", "files": moved}],
        "cd inbox; rm *.tmp; for f in *.*; do mkdir -p ${f##*.}; mv $f ${f##*.}/; done",
    )


def set_modes(name: str, rng: random.Random) -> Task:
    """Set the permissions of scripts and of other files."""
    words = rng.sample(_WORDS, 8)
    script_mode, other_mode = rng.choice(((0o750, 0o640), (0o700, 0o600), (0o755, 0o444)))
    files, modes = {}, {}
    for i, word in enumerate(words):
        is_script = i < 2 or (i < 6 and rng.random() < 0.5)
        text = f"#!/bin/sh\necho {word}\n" if is_script else f"{word}\n"
        files[f"{APP}/tools/{word}"] = File(text.encode(), 0o664)
        modes[word] = script_mode if is_script else other_mode
    return _task(
        name,
        f"In /app/tools, give every file whose first line begins with #! the mode {script_mode:o}, "
        f"and every other file the mode {other_mode:o}. Change no content.",
        files,
        [
            {"kind": "modes", "path": f"{APP}/tools", "modes": modes},
            {
                "kind": "tree",
                "path": f"{APP}/tools",
                "files": {p.rpartition("/")[2]: f.data.decode() for p, f in files.items()},
            },
        ],
        f"cd tools; for f in *; do if head -c 2 $f | grep -q '#!'; then chmod {script_mode:o} $f; "
        f"else chmod {other_mode:o} $f; fi; done",
    )


def edit_json(name: str, rng: random.Random) -> Task:
    """Change, add and delete entries of a settings file."""
    services = rng.sample(_WORDS, 4)
    settings = {
        service: {"port": rng.randint(1000, 9999), "debug": rng.random() < 0.5, "retries": 3}
        for service in services
    }
    port, limit = rng.randint(1000, 9999), rng.randint(10, 99)
    wanted = json.loads(json.dumps(settings))
    wanted[services[0]]["port"] = port
    wanted[services[1]]["limit"] = limit
    del wanted[services[2]]
    return _task(
        name,
        f"Change /app/settings.json: set the port of {services[0]} to {port}, give {services[1]} a "
        f"new entry `limit` with the number {limit}, and delete {services[2]}. Leave everything "
        "else as it is.",
        {f"{APP}/settings.json": json.dumps(settings, indent=2) + "\n"},
        [{"kind": "json", "path": f"{APP}/settings.json", "value": wanted}],
        "python3 - <<'END'\nimport json\ns = json.load(open('settings.json'))\n"
        f"s['{services[0]}']['port'] = {port}\ns['{services[1]}']['limit'] = {limit}\n"
        f"del s['{services[2]}']\njson.dump(s, open('settings.json', 'w'), indent=2)\nEND",
    )


def start_repository(name: str, rng: random.Random) -> Task:
    """Make a repository that ignores some files."""
    project, ending = rng.choice(_WORDS), rng.choice(("log", "tmp", "bak"))
    words = rng.sample(_WORDS, 6)
    tracked = {f"{word}.txt": f"{word} {rng.randint(1, 999)}\n" for word in words[:4]}
    ignored = {f"{word}.{ending}": "noise\n" for word in words[4:]}
    subject = f"Start {project}"
    folder = f"{APP}/{project}"
    return _task(
        name,
        f"Make {folder} a git repository with the branch main. Git must ignore files that end in "
        f".{ending}, by a file .gitignore with the single line `*.{ending}`. Commit everything else, "
        f"and .gitignore, in one commit with the message `{subject}`.",
        {f"{folder}/{file}": text for file, text in {**tracked, **ignored}.items()},
        [
            {
                "kind": "git",
                "path": folder,
                "subjects": [subject],
                "branch": "main",
                "files": {**tracked, ".gitignore": f"*.{ending}\n"},
            }
        ],
        f"cd {project}; git init -q -b main; echo '*.{ending}' > .gitignore; git add .; "
        f"git commit -q -m '{subject}'",
        _IDENTITY,
    )


def repair_history(name: str, rng: random.Random) -> Task:
    """Restore a deleted file from the history, commit it, and tag an older commit."""
    words = rng.sample(_WORDS, 6)
    contents = {f"{word}.txt": f"{word} {rng.randint(1, 999)}\n" for word in words[:3]}
    subjects = [f"Add {words[0]}", f"Change {words[1]}", f"Clean up {words[2]}", f"Note {words[3]}"]
    lost = f"{words[2]}.txt"
    second = contents | {f"{words[1]}.txt": f"{words[1]} {rng.randint(1000, 9999)}\n"}
    third = {file: text for file, text in second.items() if file != lost}
    fourth = third | {f"{words[3]}.txt": f"{words[3]}\n"}
    subject, tag = f"Restore {words[2]}", f"v{rng.randint(1, 9)}.{rng.randint(0, 9)}"
    return _task(
        name,
        f"In the repository /app/work, the commit `{subjects[2]}` deleted the file {lost}. Restore "
        f"it with its last content, and commit it on the branch main with the message `{subject}`. "
        f"Give the commit `{subjects[1]}` the tag {tag}.",
        repository(
            f"{APP}/work", list(zip(subjects, (contents, second, third, fourth), strict=True))
        ),
        [
            {
                "kind": "git",
                "path": f"{APP}/work",
                "subjects": [subject, *reversed(subjects)],
                "branch": "main",
                "files": {**fourth, lost: contents[lost]},
                "tags": [(tag, subjects[1])],
            }
        ],
        f"cd work; git tag {tag} HEAD~2; git checkout -q HEAD~2 -- {lost}; "
        f"git commit -q -m '{subject}'",
        _IDENTITY,
    )


def repair_program(name: str, rng: random.Random) -> Task:
    """Repair a small Python program that has one mistake."""
    program = programs.draw(rng)
    path = f"{APP}/{program.name}.py"
    example = program.runs[0]
    return _task(
        name,
        f"The program {path} reads its input from standard input. {program.purpose} It has one "
        f"mistake; repair it. For example, the input {example[0]!r} must give {example[1]!r}.",
        {path: program.broken},
        [{"kind": "program", "path": path, "runs": program.runs}],
        f"cat > {program.name}.py <<'END'\n{program.right}END",
    )


FAMILIES: Mapping[str, Callable[[str, random.Random], Task]] = {
    "count_lines": count_lines,
    "sum_columns": sum_columns,
    "sort_files": sort_files,
    "set_modes": set_modes,
    "edit_json": edit_json,
    "start_repository": start_repository,
    "repair_history": repair_history,
    "repair_program": repair_program,
}
