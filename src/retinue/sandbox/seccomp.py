"""A small filter of system calls that refuses what namespaces do not cover. Keyrings of the kernel
are inherited, sockets to the hypervisor (AF_VSOCK) belong to no network namespace, a terminal can
be typed into by ioctl, and a program that is left in the workspace with the setuid bit runs as its
owner for everyone on the machine."""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

# BPF: ld [k]; jeq k; jge k; jset k; ret k
LOAD = 0x20
EQUAL = 0x15
AT_LEAST = 0x35
ANY_BIT = 0x45
RETURN = 0x06
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
# Offsets in struct seccomp_data; the low half of an argument comes first.
NUMBER = 0
ARCH = 4
FIRST = 16
SECOND = 24
THIRD = 32
FOURTH = 40

# Unix, IPv4, IPv6 and netlink (which tells a program its own network namespace).
FAMILIES = (1, 2, 10, 16)
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
SETUID = 0o4000
CREATES = 0o100 | 0o20000000
"""O_CREAT, and the bit of O_TMPFILE: without either, what is in the place of a mode means
nothing."""
OPENAT2 = 437
"""Its mode is behind a pointer, which a filter cannot follow. Programs that use it know kernels
that do not have it."""


class SystemCalls(NamedTuple):
    """The numbers of an architecture."""

    arch: int
    """As audit calls it."""
    ioctl: int
    socket: int
    refused: dict[str, int]
    """Refused whatever their arguments are."""


X86_64 = SystemCalls(
    0xC000003E,
    16,
    41,
    {
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "io_uring_setup": 425,
        "io_uring_enter": 426,
        "io_uring_register": 427,
        "kexec_load": 246,
        "kexec_file_load": 320,
        "init_module": 175,
        "finit_module": 313,
        "delete_module": 176,
        "open_by_handle_at": 304,
        "name_to_handle_at": 303,
        "mount": 165,
        "umount2": 166,
        "pivot_root": 155,
        "move_mount": 429,
        "open_tree": 428,
        "fsopen": 430,
        "fsmount": 432,
        "mount_setattr": 442,
        "chroot": 161,
        "setns": 308,
        "unshare": 272,
        "swapon": 167,
        "swapoff": 168,
        "reboot": 169,
        "acct": 163,
        "quotactl": 179,
        "settimeofday": 164,
        "clock_settime": 227,
        "lookup_dcookie": 212,
        "nfsservctl": 180,
        "iopl": 172,
        "ioperm": 173,
    },
)
ARM64 = SystemCalls(
    0xC00000B7,
    29,
    198,
    {
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "io_uring_setup": 425,
        "io_uring_enter": 426,
        "io_uring_register": 427,
        "kexec_load": 104,
        "kexec_file_load": 294,
        "init_module": 105,
        "finit_module": 273,
        "delete_module": 106,
        "open_by_handle_at": 265,
        "name_to_handle_at": 264,
        "mount": 40,
        "umount2": 39,
        "pivot_root": 41,
        "move_mount": 429,
        "open_tree": 428,
        "fsopen": 430,
        "fsmount": 432,
        "mount_setattr": 442,
        "chroot": 51,
        "setns": 268,
        "unshare": 97,
        "swapon": 224,
        "swapoff": 225,
        "reboot": 142,
        "acct": 89,
        "quotactl": 60,
        "settimeofday": 170,
        "clock_settime": 112,
        "lookup_dcookie": 18,
    },
)
TABLES = {"x86_64": X86_64, "aarch64": ARM64}
# What gives a file its mode: number, position of the mode, and position of the flags that say
# whether it counts.
MODES = {
    # chmod, fchmod, fchmodat, fchmodat2, creat, mknod, mknodat, open, openat
    "x86_64": (
        *((90, SECOND, 0), (91, SECOND, 0), (268, THIRD, 0), (452, THIRD, 0), (85, SECOND, 0)),
        *((133, SECOND, 0), (259, THIRD, 0), (2, THIRD, SECOND), (257, FOURTH, THIRD)),
    ),
    # fchmod, fchmodat, fchmodat2, mknodat, openat
    "aarch64": (
        (52, SECOND, 0),
        (53, THIRD, 0),
        (452, THIRD, 0),
        (33, THIRD, 0),
        (56, FOURTH, THIRD),
    ),
}


def program(machine: str | None = None) -> bytes:
    """The filter for this machine, as the kernel reads it; empty where we have no table."""
    machine = machine or platform.machine()
    table = TABLES.get(machine)
    if table is None:
        return b""
    no = REFUSE | errno.EPERM
    # Programs of another architecture (32-bit ones) would need tables of their own: they are
    # killed.
    code = [_op(LOAD, ARCH), _op(EQUAL, table.arch, 1, 0), _op(RETURN, KILL), _op(LOAD, NUMBER)]
    if table is X86_64:
        code += [_op(AT_LEAST, 0x40000000, 0, 1), _op(RETURN, REFUSE | errno.ENOSYS)]
    for number in sorted(set(table.refused.values())):
        code += [_op(EQUAL, number, 0, 1), _op(RETURN, no)]
    code += [_op(EQUAL, OPENAT2, 0, 1), _op(RETURN, REFUSE | errno.ENOSYS)]
    for number, mode, flags in MODES[machine]:
        # Each block ends in an answer, for the number of the call is no longer loaded.
        looks = [_op(LOAD, flags), _op(ANY_BIT, CREATES, 0, 2)] if flags else []
        looks += [_op(LOAD, mode), _op(ANY_BIT, SETUID, 1, 0), _op(RETURN, ALLOW), _op(RETURN, no)]
        code += [_op(EQUAL, number, 0, len(looks)), *looks]
    # The kernel reads an ioctl's request and a socket's family as 32 bits; so do we.
    code += [_op(EQUAL, table.ioctl, 0, 5), _op(LOAD, SECOND)]
    code += [
        _op(EQUAL, TIOCSTI, 1, 0),
        _op(EQUAL, TIOCLINUX, 0, 1),
        _op(RETURN, no),
        _op(RETURN, ALLOW),
    ]
    code += [_op(EQUAL, table.socket, 0, 2 + len(FAMILIES)), _op(LOAD, FIRST)]
    code += [_op(EQUAL, family, len(FAMILIES) - at, 0) for at, family in enumerate(FAMILIES)]
    code += [_op(RETURN, REFUSE | errno.EAFNOSUPPORT), _op(RETURN, ALLOW)]
    return b"".join(code)


def _op(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, k)
