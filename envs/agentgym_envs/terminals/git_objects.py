"""A repository as files, made without git, so that its commits are the same on every machine."""

import hashlib
import struct
import zlib
from collections.abc import Mapping, Sequence

from agentgym_envs.terminals.tasks import File

_AUTHOR = "Ada Example <ada@example.org>"
_START = 1_600_000_000  # seconds since 1970, time of the first commit
CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"


def repository(folder: str, commits: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, File]:
    """Returns the files of a repository on branch `main` with a linear history, checked out.

    Args:
      folder: Absolute path of its working folder.
      commits: Subject and all files of each commit, the oldest first; the files are in no folders.
    """
    files: dict[str, File] = {}

    def add(kind: str, body: bytes) -> str:
        data = _framed(kind, body)
        name = _sha1(data).hex()
        files[f".git/objects/{name[:2]}/{name[2:]}"] = File(zlib.compress(data), 0o444)
        return name

    parent = ""
    for i, (subject, contents) in enumerate(commits):
        tree = b"".join(
            f"100644 {name}\0".encode() + bytes.fromhex(add("blob", text.encode()))
            for name, text in sorted(contents.items())
        )
        when = f"{_AUTHOR} {_START + 3600 * i} +0000"
        lines = [f"tree {add('tree', tree)}"] + ([f"parent {parent}"] if parent else [])
        lines += [f"author {when}", f"committer {when}", "", subject, ""]
        parent = add("commit", "\n".join(lines).encode())
    files[".git/HEAD"] = File(b"ref: refs/heads/main\n")
    files[".git/config"] = File(CONFIG)
    files[".git/refs/heads/main"] = File(f"{parent}\n".encode())
    last = {name: text.encode() for name, text in commits[-1][1].items()}
    files[".git/index"] = File(_index(last))
    files |= {name: File(data) for name, data in last.items()}
    return {f"{folder}/{name}": file for name, file in files.items()}


def _framed(kind: str, body: bytes) -> bytes:
    return f"{kind} {len(body)}\0".encode() + body


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _index(contents: Mapping[str, bytes]) -> bytes:
    """Returns an index (version 2) of these files without times, which git reads from the files."""
    data = struct.pack(">4sII", b"DIRC", 2, len(contents))
    for name, content in sorted(contents.items()):
        times_and_owner = struct.pack(">6I3I", 0, 0, 0, 0, 0, 0, 0o100644, 0, 0)
        entry = times_and_owner + struct.pack(">I", len(content))
        entry += _sha1(_framed("blob", content)) + struct.pack(">H", len(name)) + name.encode()
        data += entry + b"\0" * (8 - len(entry) % 8)
    return data + _sha1(data)
