"""A terminal task: instruction, first files, hidden tests, solution and limits."""

import dataclasses
import io
import pathlib
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_envs.base import manifest
from agentgym_envs.terminals.sandbox import HOME, Limits

TESTS = "/tests"
LOGS = "/logs/verifier"
REWARD = f"{LOGS}/reward.txt"
_TEST_SHARE = 0.2
_TIME = 1_600_000_000  # seconds since 1970; every file of a new episode has this age


@dataclasses.dataclass(frozen=True)
class File:
    """Content of a file and its permissions."""

    data: bytes
    mode: int = 0o644


@dataclasses.dataclass(frozen=True)
class Image:
    """Where the image of a container comes from.

    Attributes:
      context: Folder with a Dockerfile.
      name: Name of a finished image, which is used in place of the folder; empty for none.
      seconds: Time to build it.
    """

    context: pathlib.Path
    name: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
      name: Unique name.
      instruction: Text for the agent.
      files: First files by absolute path.
      tests: Hidden files by path in /tests. `test.sh` writes the reward to /logs/verifier/reward.txt.
      solution: Shell script that solves the task; empty if there is none.
      work: Folder in which commands start.
      variables: Environment variables of all commands.
      test_variables: Further variables of the tests.
      agent_seconds: Time of all commands of an episode together.
      test_seconds: Time of the tests.
      limits: Limits of one command.
      image: Image for a container; None if the task has none.
      needs_container: Reason why only a container can run the task; empty if there is none.
    """

    name: str
    instruction: str
    files: Mapping[str, File]
    tests: Mapping[str, File]
    solution: str
    work: str = "/app"
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    test_variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    agent_seconds: float = 120
    test_seconds: float = 15
    limits: Limits = Limits()
    image: Image | None = dataclasses.field(default=None, compare=False)
    needs_container: str = ""

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that the agent can write: those of its files at the top level, home and /tmp."""
        tops = {"/" + path.split("/")[1] for path in (self.work, *self.files)}
        return tuple(sorted({*tops - {"/home"}, "/tmp", HOME}))


def pack(files: Mapping[str, File], folders: Sequence[str] = ()) -> bytes:
    """Returns an archive of files by absolute path, with empty folders; empty for nothing."""
    if not files and not folders:
        return b""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        parents = {str(p) for path in files for p in pathlib.PurePosixPath(path).parents}
        for folder in sorted({*folders, *parents} - {"/"}):
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, _TIME
            archive.addfile(entry)
        for path, file in sorted(files.items()):
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode, entry.mtime = len(file.data), file.mode, _TIME
            archive.addfile(entry, io.BytesIO(file.data))
    return buffer.getvalue()


def task_manifest(tasks: Sequence[Task]) -> tuple[dict[str, Any], ...]:
    """Returns name, group and split of all tasks; a fifth of each group is held out.

    The group is the part of the name before the last `/`. The held-out tasks are the first in the
    order of the sha256 of their names.
    """
    groups: dict[str, list[str]] = {}
    for task in tasks:
        groups.setdefault(task.name.rpartition("/")[0], []).append(task.name)
    test = {
        name
        for names in groups.values()
        for name in manifest.hash_order(names)[: max(1, round(_TEST_SHARE * len(names)))]
    }
    return tuple(
        {
            "data_idx": i,
            "split": manifest.TEST if task.name in test else manifest.TRAIN,
            "name": task.name,
            "group": task.name.rpartition("/")[0],
        }
        for i, task in enumerate(tasks)
    )
