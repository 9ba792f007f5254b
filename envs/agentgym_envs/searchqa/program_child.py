"""Child process that executes one program of an agent, and can do nothing but compute and print.

`programs.py` starts it with the program as standard input. A seccomp filter (seccomp(2)) then
refuses every system call except those of CALLS. The kernel applies it to all code of the process,
also to native code, and nothing can remove it. The limits on time and memory are setrlimit(2)'s.
"""

import ctypes
import importlib
import io
import linecache
import os
import platform
import random
import resource
import signal
import struct
import sys
import traceback

# First output of a confined process, which its program cannot take back. Without it the program was
# not executed.
CONFINED = b"+"

CPU_SECONDS = 5
MEMORY_BYTES = 256 << 20

# No file can be opened under the filter, so modules that a program can import are loaded before.
MODULES = (
    "_strptime bisect calendar cmath collections copy csv dataclasses datetime decimal difflib enum "
    "fractions functools heapq io itertools json math numbers operator random re statistics string "
    "textwrap time typing unicodedata"
).split()

# By machine: the architecture in linux/audit.h and the numbers of the allowed system calls, in the
# same order: write, mmap, munmap, mremap, brk, rt_sigreturn, nanosleep, clock_nanosleep,
# restart_syscall, clock_gettime, clock_getres, gettimeofday, exit, exit_group.
CALLS = {
    "x86_64": (0xC000003E, (1, 9, 11, 25, 12, 15, 35, 230, 219, 228, 229, 96, 60, 231)),
    "aarch64": (0xC00000B7, (64, 222, 215, 216, 214, 139, 101, 115, 128, 113, 114, 169, 93, 94)),
}
# linux/bpf_common.h, linux/seccomp.h, linux/prctl.h
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM = 1
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38


class _Code(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def filter_code(architecture: int, numbers: tuple[int, ...]) -> bytes:
    """Returns the filter: other calls fail with EPERM; calls of another architecture kill."""
    count = len(numbers)
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        *((_JUMP_IF_EQUAL, count - i, 0, number) for i, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ERROR | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def restrict(parent_pid: int) -> None:
    """Sets the limits and installs the filter, for the rest of the process.

    Raises:
      OSError: The kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def prctl(option: int, *values: object) -> None:
        padded = [*values, *[ctypes.c_ulong(0)] * (4 - len(values))]
        if libc.prctl(option, *padded):
            raise OSError(ctypes.get_errno(), f"prctl({option})")

    prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent_pid:
        raise OSError("the parent is gone")
    prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0))
    limits = {
        resource.RLIMIT_CPU: CPU_SECONDS,
        resource.RLIMIT_AS: MEMORY_BYTES,
        # The filter refuses what these limit.
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))
    code = filter_code(*CALLS[platform.machine()])
    prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1))
    program = _Code(len(code) // 8, code)
    prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(program))  # 2: SECCOMP_MODE_FILTER


def print_error(error: BaseException) -> None:
    """Prints a traceback without frames of other files, whose paths depend on the machine."""
    whole = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = whole
    while part is not None:
        frames = [frame for frame in part.stack if frame.filename == "program"]
        part.stack = traceback.StackSummary.from_list(frames)
        part = part.__cause__ or part.__context__
    sys.stderr.write("".join(whole.format()))


def main() -> None:
    """Executes the program of standard input and prints the traceback of its error."""
    text = sys.stdin.buffer.read().decode("utf-8")
    os.close(0)
    sys.stdin = None
    # Keeps lines that were printed before a time limit, and their order with a traceback.
    sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", line_buffering=True)
    for name in MODULES:
        importlib.import_module(name)
    random.seed(0)
    linecache.cache["program"] = (len(text), None, text.splitlines(keepends=True), "program")
    try:
        restrict(int(sys.argv[1]))
    except (OSError, KeyError) as error:
        sys.stdout.write(f"{type(error).__name__}: {error}")
        return
    os.write(1, CONFINED)
    # For plain error messages only. From here on, nothing but the kernel's limits is safe.
    sys.meta_path.clear()
    for name in ("ctypes", "_ctypes", "resource"):
        del sys.modules[name]
    sys.argv = ["program"]
    try:
        exec(compile(text, "program", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
    except BaseException as error:  # noqa: BLE001 - any error of the program
        print_error(error)


if __name__ == "__main__":
    main()
