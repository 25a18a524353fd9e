"""Out through namespaces, mounts, devices and calls of the kernel."""

import os
import signal
import socket
from typing import Any

from .base import attempt, check, each, facts, libc, read, syscall, write


@attempt
def hold_capabilities() -> Any:
    return int(read("/proc/self/status").split("CapEff:")[1].split()[0], 16)


@attempt
def gain_privileges_by_exec() -> Any:
    return "NoNewPrivs:\t1" not in read("/proc/self/status")


@attempt
def mount_something() -> Any:
    return check(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))


@attempt
def remount_writable() -> Any:
    return each(
        ["/usr", "/", "/proc", ".git/hooks"],
        lambda p: libc.mount(None, p.encode(), None, 0x1020, None) == 0,
    )


@attempt
def unmount_a_mask() -> Any:
    return each(
        [".mcp.json", ".git/hooks", "/proc", "/usr"], lambda p: libc.umount2(p.encode(), 2) == 0
    )


@attempt
def bind_over_a_protected_directory() -> Any:
    return check(libc.mount(b"/tmp", b".git/hooks", None, 0x1000, None))


@attempt
def new_mount_interface() -> Any:
    return syscall("open_tree", -100, b"/usr", 1)


@attempt
def new_user_namespace() -> Any:
    return check(libc.unshare(0x10000000))


@attempt
def new_user_namespace_by_clone() -> Any:
    number = facts["clone"]
    pid = libc.syscall(number, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return check(pid)


@attempt
def enter_another_namespace() -> Any:
    with open("/proc/1/ns/mnt") as file:
        return check(libc.setns(file.fileno(), 0))


@attempt
def change_the_root() -> Any:
    os.chroot("/tmp")
    return True


@attempt
def open_by_handle() -> Any:
    return syscall("open_by_handle_at", -100, b"\0" * 64, 0)


@attempt
def make_a_device() -> Any:
    os.mknod("disk", 0o060666, os.makedev(254, 0))
    return True


@attempt
def open_devices() -> Any:
    paths = [
        "/dev/mem",
        "/dev/kmsg",
        "/dev/vda",
        "/dev/sda",
        "/dev/nvme0n1",
        "/dev/fuse",
        "/dev/kvm",
        "/dev/port",
    ]
    return each(paths, lambda p: os.open(p, os.O_RDONLY) >= 0)


@attempt
def fill_the_device_directory() -> Any:
    return write("/dev/retinue-test")


@attempt
def write_kernel_settings() -> Any:
    paths = [
        "kernel/core_pattern",
        "kernel/hostname",
        "vm/drop_caches",
        "kernel/modprobe",
        "fs/file-max",
    ]
    return each([f"/proc/sys/{p}" for p in paths], lambda p: os.open(p, os.O_WRONLY) >= 0)


@attempt
def press_system_keys() -> Any:
    return write("/proc/sysrq-trigger")


@attempt
def read_kernel_memory() -> Any:
    return each(["/proc/kcore", "/proc/kmsg", "/dev/mem"], lambda p: os.open(p, os.O_RDONLY) >= 0)


@attempt
def write_control_groups() -> Any:
    return each(
        ["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/pids/cgroup.procs"], write
    ) or os.path.exists("/sys/fs")


@attempt
def load_a_module() -> Any:
    return syscall("finit_module", 0, b"", 0)


@attempt
def use_key_rings() -> Any:
    return syscall("keyctl", 0, -3, 0)


@attempt
def add_a_key() -> Any:
    return syscall("add_key", b"user", b"x", b"y", 1, -3)


@attempt
def load_kernel_programs() -> Any:
    return syscall("bpf", 0, b"\0" * 128, 128)


@attempt
def watch_performance() -> Any:
    return syscall("perf_event_open", b"\0" * 128, 0, -1, -1, 0)


@attempt
def use_rings() -> Any:
    return syscall("io_uring_setup", 8, b"\0" * 256)


@attempt
def set_the_clock() -> Any:
    return check(libc.settimeofday(b"\0" * 16, None))


@attempt
def set_the_host_name() -> Any:
    socket.sethostname("escaped")
    return True


@attempt
def restart_the_machine() -> Any:
    return syscall("reboot", 0xFEE1DEAD, 672274793, 0, None)  # switches off a key, if it may
