"""Filter of system calls for sandboxes, as a program for the kernel (seccomp, classic BPF).

It refuses calls whose effects no namespace limits: memory that no process limit counts, the keys of
the user, tracing, kernel interfaces without need, and sockets to the host of a virtual machine.
"""

import errno
import platform
import struct

# Numbers of the refused calls, from the tables of Linux: x86_64, aarch64.
_REFUSED = {
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "syslog": (103, 116),
}
_SOCKET = (41, 198)
_FAMILIES = (1, 2, 10, 16)  # unix, IPv4, IPv6 and netlink, which the network namespace isolates
# Column of the tables above, and the kernel's name of the machine (AUDIT_ARCH_...).
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in `struct seccomp_data`
_X32 = 0x40000000  # numbers from here on are those of another calling convention


def is_supported() -> bool:
    """Returns True if the filter knows the calls of this machine."""
    return platform.machine() in _MACHINES


def program() -> bytes:
    """Returns the filter for this machine, as an array of `struct sock_filter`."""
    column, machine = _MACHINES[platform.machine()]
    refused = [numbers[column] for numbers in _REFUSED.values()]
    families = len(_FAMILIES)
    steps = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, machine),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, len(refused) + families + 2, 0, _X32),
        *((_EQUAL, len(refused) - i + families + 1, 0, number) for i, number in enumerate(refused)),
        (_EQUAL, 0, families + 2, _SOCKET[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *((_EQUAL, families - i, 0, family) for i, family in enumerate(_FAMILIES)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
