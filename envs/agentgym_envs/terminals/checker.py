"""Tests of the tasks by recipe: runs in the sandbox as `python3 -I /tests/check.py`.

The file imports only Python's standard library. It follows no links in the agent's files, and it
reads a copy of a repository's objects, without its settings. The agent's programs run in a second
sandbox, which has neither this process nor the tests nor the reward.
"""

import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping

LARGEST = 1 << 20  # bytes of a file that is read
SECONDS = 5  # of one program


def read(path):
    """Returns the text of a plain file; None for anything else."""
    if os.path.realpath(path) != path or not os.path.isfile(path):
        return None
    if os.path.getsize(path) > LARGEST:
        return None
    return pathlib.Path(path).read_bytes().decode("utf-8", errors="replace")


def check_file(path, text):
    """The file has the text, up to white space at its end."""
    found = read(path)
    return found is not None and found.rstrip() == text.rstrip()


def check_json(path, value):
    """The file holds the value as JSON; its text is compared, because Python takes 1 for True."""
    try:
        found = json.dumps(json.loads(read(path) or ""), sort_keys=True)
    except (ValueError, RecursionError):
        return False
    return found == json.dumps(value, sort_keys=True)


def check_tree(path, files):
    """The folder has these files and no others."""
    found = []
    for folder, _, names in os.walk(path):
        found += [os.path.relpath(os.path.join(folder, name), path) for name in names]
    return sorted(found) == sorted(files) and all(
        check_file(os.path.join(path, name), text) for name, text in files.items()
    )


def check_modes(path, modes):
    """The files have these permissions."""
    return all(
        read(os.path.join(path, name)) is not None
        and stat.S_IMODE(os.lstat(os.path.join(path, name)).st_mode) == mode
        for name, mode in modes.items()
    )


def check_program(path, runs):
    """The program answers each input with the expected output."""
    return read(path) is not None and all(
        run_alone(path, stdin).split() == stdout.split() for stdin, stdout in runs
    )


def run_alone(path, stdin):
    """Returns the output of a Python program of the agent, which runs in its own sandbox."""
    options = ["--unshare-user", "--unshare-all", "--die-with-parent", "--new-session"]
    options += ["--disable-userns", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"]
    options += ["--ro-bind", "/usr", "/usr", "--tmpfs", "/tmp", "--dev", "/dev"]
    for name in ("bin", "lib", "lib64"):
        if os.path.islink("/" + name):
            options += ["--symlink", os.readlink("/" + name), "/" + name]
        elif os.path.isdir("/" + name):
            options += ["--ro-bind", "/" + name, "/" + name]
    folder = os.path.dirname(path)
    options += ["--ro-bind", folder, folder, "--chdir", folder]
    with tempfile.TemporaryFile() as output:
        try:
            subprocess.run(
                ["bwrap", *options, "--", "python3", path],
                input=stdin.encode(),
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ""
        output.seek(0)
        return output.read(LARGEST).decode("utf-8", errors="replace")


def check_git(path, subjects, branch, files, tags=()):
    """The branch has commits with these subjects, the newest first, and its tree has these files."""
    with tempfile.TemporaryDirectory(dir="/logs/verifier") as bare:
        copy_repository(os.path.join(path, ".git"), bare)

        def git(*arguments):
            command = ["git", f"--git-dir={bare}", *arguments]
            return subprocess.run(
                command, capture_output=True, check=True, timeout=SECONDS, text=True
            ).stdout

        reference = f"refs/heads/{branch}"
        if git("log", "--format=%s", reference, "--").splitlines() != subjects:
            return False
        names = git("ls-tree", "-r", "--name-only", "-z", reference).split("\0")[:-1]
        if sorted(names) != sorted(files):
            return False
        if any(git("cat-file", "blob", f"{reference}:{n}") != t for n, t in files.items()):
            return False
        return all(git("log", "-1", "--format=%s", f"refs/tags/{t}") == s + "\n" for t, s in tags)


def copy_repository(source, target):
    """Copies objects and references of a repository, without its settings and hooks."""
    subprocess.run(["git", "init", "-q", "--bare", target], check=True, timeout=SECONDS)
    for folder in ("objects", "refs"):
        for parent, _, names in os.walk(os.path.join(source, folder)):
            for name in names:
                path = os.path.join(parent, name)
                is_setting = os.path.basename(parent) == "info"  # such as borrowed objects
                if is_setting or os.path.islink(path) or not os.path.isfile(path):
                    continue
                place = os.path.join(target, os.path.relpath(path, source))
                os.makedirs(os.path.dirname(place), exist_ok=True)
                shutil.copyfile(path, place)
    packed = read(os.path.join(source, "packed-refs"))
    if packed is not None:
        pathlib.Path(target, "packed-refs").write_text(packed)


CHECKS: Mapping[str, Callable[..., bool]] = {
    "file": check_file,
    "json": check_json,
    "tree": check_tree,
    "modes": check_modes,
    "program": check_program,
    "git": check_git,
}


def main():
    """Writes 1 as the reward if all checks hold, otherwise 0."""
    here = pathlib.Path(sys.argv[0]).parent
    reward = 0
    try:
        checks = json.loads((here / "expected.json").read_text())
        reward = int(all(CHECKS[check.pop("kind")](**check) for check in checks))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{error}\n")
    pathlib.Path("/logs/verifier/reward.txt").write_text(f"{reward}\n")


if __name__ == "__main__":
    main()
