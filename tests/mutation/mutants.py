"""Evidence that the tests notice defects.

This script applies small defects one by one and runs the tests.

    python tests/mutation/mutants.py          # all mutants
    python tests/mutation/mutants.py 3 17     # some of them

The script works on a copy of the tree in a temporary folder. It first runs the tests of each defect
on the unchanged code. A mutant is killed if its default tests fail, killed `(slow)` if only its
slow tests fail, and survives otherwise.
"""

import collections
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from defects import MUTANTS, Mutant

ROOT = pathlib.Path(__file__).parents[2]
SOURCES = ("agentgym_jax", "envs")
TIMEOUT_S = 300
NO_TESTS = 5  # exit status of pytest if no test has the marker


def copy_tree(target: pathlib.Path) -> None:
    """Copies all files that git tracks or does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def find_source(tree: pathlib.Path, mutant: Mutant) -> pathlib.Path:
    """Returns the source file that contains the code of a mutant.

    Raises:
      ValueError: The code is not found, is in several files, or occurs more than once in a file.
    """
    files = (path for folder in SOURCES for path in sorted((tree / folder).rglob("*.py")))
    counts = {path: path.read_text(encoding="utf-8").count(mutant.before) for path in files}
    found = {str(path.relative_to(tree)): n for path, n in counts.items() if n}
    if list(found.values()) != [1]:
        raise ValueError(f"{mutant.before!r} must occur once, but occurs in {found or 'no file'}")
    return tree / next(iter(found))


def run_tests(
    tree: pathlib.Path, tests: Sequence[str], timeout_s: float, marked: str = "not slow"
) -> int | None:
    """Returns the exit status of the tests with a marker, or None after a timeout."""
    environment = os.environ | {"PYTHONPATH": f"{tree}{os.pathsep}{tree / 'envs'}"}
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "-m", marked, *tests]
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # also kills the servers that the tests started
        process.wait()
        return None


def try_mutant(tree: pathlib.Path, mutant: Mutant, clock: int) -> str:
    """Returns `killed`, `killed (slow)`, `survived` or the reason why there is no result.

    Args:
      tree: Copy of the tree; it is restored afterwards.
      mutant: Defect to apply.
      clock: Modification time of the changed file. Python compares modification times in whole
        seconds, so each change needs a different time.
    """
    path = find_source(tree, mutant)
    original = path.read_text(encoding="utf-8")
    path.write_text(original.replace(mutant.before, mutant.after), encoding="utf-8")
    os.utime(path, (clock, clock))
    try:
        status, by = run_tests(tree, [mutant.tests], TIMEOUT_S), ""
        if status == 0:
            status, by = run_tests(tree, [mutant.tests], TIMEOUT_S, "slow"), " (slow)"
    finally:
        path.write_text(original, encoding="utf-8")
        os.utime(path, (clock + 1, clock + 1))
    if status in (0, NO_TESTS):
        return "survived"
    return f"killed{by}" if status in (1, None) else f"pytest ended with status {status}"


def say(line: str) -> None:
    """Writes a line and flushes it, because a whole run takes a quarter of an hour."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(numbers: Sequence[str]) -> int:
    """Prints one line per mutant; returns 1 unless all mutants are killed."""
    chosen = [int(n) for n in numbers] or range(1, len(MUTANTS) + 1)
    results: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        copy_tree(tree)
        for n in chosen:
            find_source(tree, MUTANTS[n - 1])
        tests = sorted({MUTANTS[n - 1].tests for n in chosen})
        if missing := [path for path in tests if not (tree / path).exists()]:
            raise ValueError(f"there are no tests {missing}")
        if run_tests(tree, tests, TIMEOUT_S * len(tests)) != 0:
            say("the tests fail without any defect")
            return 1
        first = int(time.time()) + 10
        for i, n in enumerate(chosen):
            mutant = MUTANTS[n - 1]
            result = try_mutant(tree, mutant, first + 2 * i)
            results[result] += 1
            say(f"{n:2}  {result:13}  {mutant.area:10}  {mutant.before.splitlines()[0].strip()}")
    say(", ".join(f"{count} {result}" for result, count in results.items()))
    return 0 if set(results) <= {"killed", "killed (slow)"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
