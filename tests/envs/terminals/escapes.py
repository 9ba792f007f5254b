"""Attempts to leave a sandbox, run in it; prints the names of those that succeed.

Arguments: number of a process of the machine, port of a server of the machine, name of its abstract
socket, a file of the machine. The script uses only Python's standard library.
"""

import ctypes
import os
import platform
import signal
import socket
import subprocess
import sys

PROCESS, PORT, ABSTRACT, OUTSIDE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
libc = ctypes.CDLL(None, use_errno=True)
COLUMN = {"x86_64": 0, "aarch64": 1}[platform.machine()]
CALLS = {  # numbers of system calls with harmless arguments
    "memory that is no file": ((319, 279), (b"name", 0)),
    "secret memory": ((447, 447), (0,)),
    "shared memory of System V": ((29, 194), (0, 4096, 0o1600)),
    "message queue of System V": ((68, 186), (0, 0o1600)),
    "key of the user": ((248, 217), (b"user", b"name", b"data", 4, -4)),
    "key ring": ((250, 219), (0, -4, 1)),
    "program in the kernel": ((321, 280), (5, b"", 0)),
    "performance counter": ((298, 241), (bytes(128), 0, -1, -1, 0)),
    "page fault handler": ((323, 282), (1,)),
    "ring of requests": ((425, 425), (4, bytes(256))),
    "tracing": ((101, 117), (0, 0, 0, 0)),
    "log of the kernel": ((103, 116), (10, 0, 0)),
    "watch of the file system": ((300, 262), (0, 0)),
}


def call(numbers, arguments):
    ctypes.set_errno(0)
    assert libc.syscall(numbers[COLUMN], *arguments) >= 0


def mounted(*arguments):
    assert libc.mount(*arguments) == 0


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2)  # reached
        client.connect(address)


def write(path, text="x"):
    with open(path, "w") as file:
        file.write(text)


def read(path):
    with open(path, "rb") as file:
        assert file.read(16)


def run(*command):
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def shows(folder, *names):
    assert set(os.listdir(folder)) - set(names)


def listen_to_virtual_machine():
    socket.socket(40, socket.SOCK_STREAM).close()


def inherited_descriptor():
    found = [f"/proc/self/fd/{fd}" for fd in range(3, 256)]
    # Python holds the script itself open.
    assert [fd for fd in found if os.path.lexists(fd) and os.readlink(fd) != "/app/escapes.py"]


def other_process():
    own = {"1", str(os.getpid())}
    for name in os.listdir("/proc"):
        if name.isdigit() and name not in own:
            command = open(f"/proc/{name}/cmdline").read()
            assert "bash" in command or "timeout" in command, command
    raise OSError("only processes of this sandbox")


def is_root():
    libc.setuid(0)
    assert os.geteuid() == 0 or os.stat("/usr").st_uid == os.getuid()


ATTEMPTS = {
    "use an inherited descriptor": inherited_descriptor,  # first: others leave some open
    **{name: lambda c=c: call(*c) for name, c in CALLS.items()},
    "read a file of the machine": lambda: read(OUTSIDE),
    "read it through a process": lambda: read(f"/proc/1/root{OUTSIDE}"),
    "read the passwords": lambda: read("/etc/shadow"),
    "see homes": lambda: shows("/home", "agent"),
    "see the kernel": lambda: shows("/sys"),
    "see the root of the machine": lambda: shows(
        *("/", *"app bin dev etc home lib lib32 lib64 proc run sbin tmp usr".split())
    ),
    "write a program": lambda: write("/usr/bin/new"),
    "change a program": lambda: write("/usr/bin/git"),
    "write settings": lambda: write("/etc/new"),
    "preload a library": lambda: write("/etc/ld.so.preload"),
    "write to the root": lambda: write("/new"),
    "write a device": lambda: write("/dev/new"),
    "handle crashes": lambda: write("/proc/sys/kernel/core_pattern", "|/app/x"),
    "load modules": lambda: write("/proc/sys/kernel/modprobe", "/app/x"),
    "press keys of the kernel": lambda: write("/proc/sysrq-trigger", "h"),
    "read the memory of the machine": lambda: read("/dev/mem"),
    "read the memory of the kernel": lambda: read("/proc/kcore"),
    "make a device": lambda: os.mknod("/app/disk", 0o60600, os.makedev(8, 0)),
    "mount": lambda: mounted(b"none", b"/app", b"tmpfs", 0, None),
    "show a hidden folder": lambda: libc.umount2(b"/proc/sys", 2) == 0 or 1 / 0,
    "make programs writable": lambda: mounted(b"none", b"/usr", None, 32 | 4096, None),
    "change the root": lambda: os.chroot("/app"),
    "new user namespace": lambda: libc.unshare(0x10000000) == 0 or 1 / 0,
    "new mount namespace": lambda: libc.unshare(0x00020000) == 0 or 1 / 0,
    "join a namespace": lambda: libc.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0) == 0 or 1 / 0,
    "sandbox in the sandbox": lambda: run("bwrap", "--ro-bind", "/", "/", "true"),
    "become root": is_root,
    "run a program of root": lambda: run("su", "-c", "true"),
    "signal a process of the machine": lambda: os.kill(PROCESS, 0),
    "signal all processes": lambda: os.kill(1, signal.SIGKILL) or os.kill(1, 0) or 1 / 0,
    "see a process of the machine": other_process,
    "read memory of process 1": lambda: read("/proc/1/mem"),
    "reach a server of the machine": lambda: connect(socket.AF_INET, ("127.0.0.1", PORT)),
    "reach its abstract socket": lambda: connect(socket.AF_UNIX, "\0" + ABSTRACT),
    "reach the network": lambda: connect(socket.AF_INET, ("192.0.2.1", 80)),
    "reach the network by IPv6": lambda: connect(socket.AF_INET6, ("2001:db8::1", 80)),
    "resolve a name": lambda: socket.getaddrinfo("example.org", 80),
    "see packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "send raw packets": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
    "reach the host of a virtual machine": listen_to_virtual_machine,
    "type into the terminal": lambda: read("/dev/tty"),
    "raise a limit": lambda: run("bash", "-c", "ulimit -u 9999"),
    "raise the priority": lambda: os.nice(-5),
}

for name, attempt in ATTEMPTS.items():
    try:
        attempt()
    except (AssertionError, ArithmeticError, OSError, subprocess.SubprocessError):
        continue
    sys.stdout.write(f"{name}\n")
sys.stdout.write(f"{len(ATTEMPTS)} attempts\n")
