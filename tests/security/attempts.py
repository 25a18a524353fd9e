"""Ways out of the sandbox, to be run inside it. Prints one line of JSON for each: its name, and what came of it.

`facts` comes from the test outside: where things are that must not be reached. An attempt that returns something true
has got out; one that raises was stopped.
"""

import contextlib
import ctypes
import fcntl
import glob
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
facts: dict[str, Any] = {}
ATTEMPTS: dict[str, Callable[[], Any]] = {}


def attempt(function: Callable[[], Any]) -> Callable[[], Any]:
    ATTEMPTS[function.__name__] = function
    return function


def check(result: int) -> bool:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


def syscall(name: str, *args: Any) -> bool:
    return check(libc.syscall(facts["syscalls"][name], *args))


def read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(1 << 20).decode("utf-8", "replace")


def write(path: str) -> bool:
    with open(path, "w") as file:
        file.write("escaped")
    return True


def shell(line: str) -> bool:
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True).returncode == 0


def connect(family: int, kind: int, address: Any) -> bool:
    with socket.socket(family, kind) as sock:
        sock.settimeout(2)
        sock.connect(address)
        sock.send(b"escaped")
        return True


def each(paths: list[str], act: Callable[[str], Any]) -> list[str]:
    done = []
    for path in paths:
        with contextlib.suppress(OSError):
            if act(path):
                done.append(path)
    return done


# Files outside


@attempt
def write_system_files() -> Any:
    return each([f"{d}/retinue-test" for d in ("/etc", "/usr", "/usr/bin", "/bin", "/lib", "/opt", "/", "/var")], write)


@attempt
def overwrite_passwd() -> Any:
    return write("/etc/passwd")


@attempt
def make_directories_at_the_root() -> Any:
    return each(["/run", "/srv", "/home", "/boot"], lambda p: os.makedirs(f"{p}/x") or True)


@attempt
def read_shadow() -> Any:
    return each(["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/ssh_host_rsa_key"], read)


@attempt
def read_secrets_of_the_home() -> Any:
    return each([f"{facts['home']}/{n}" for n in (".ssh/id", ".aws/credentials", ".netrc", ".config/token")], read)


@attempt
def list_home_directories() -> Any:
    names = [name for d in ("/home", facts["home"], "/root") if os.path.isdir(d) for name in os.listdir(d)]
    return [n for n in names if n.startswith((".ssh", ".aws", ".netrc", ".config"))]


@attempt
def read_the_state_of_the_runtime() -> Any:
    return each([facts["state"] + "/log.db"], read)


@attempt
def read_another_temporary_file() -> Any:
    return each([facts["outside"]], read)


@attempt
def write_another_temporary_file() -> Any:
    return write(facts["outside"])


@attempt
def climb_with_dots() -> Any:
    up = "../" * 30
    return each([f"{up}{facts['outside'].lstrip('/')}", f"{up}etc/shadow"], read)


@attempt
def climb_through_cwd_of_the_first_process() -> Any:
    return each([f"/proc/1/{d}{p}" for d in ("root", "cwd") for p in (facts["outside"], "/etc/shadow")], read)


@attempt
def climb_through_open_descriptors() -> Any:
    paths = [f"{fd}{facts['outside']}" for fd in glob.glob("/proc/*/fd/*")]
    paths += [f"{fd}/../../../../../../..{facts['outside']}" for fd in glob.glob("/proc/*/fd/*")]
    return each(paths, read)


@attempt
def follow_a_link_out() -> Any:
    os.symlink(facts["outside"], "link-out")
    return each(["link-out"], read)


@attempt
def write_through_a_link() -> Any:
    os.symlink("/etc", "link-etc")
    return write("link-etc/retinue-test")


@attempt
def hard_link_to_the_outside() -> Any:
    os.link("/etc/passwd", "passwd")
    return write("passwd")


@attempt
def hard_link_to_a_protected_file() -> Any:
    os.link(".git/config", "config-link")
    return write("config-link")


@attempt
def inherited_descriptors() -> Any:
    found = [fd for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2]
    return [fd for fd in found if os.path.exists(f"/proc/self/fd/{fd}") and fd != facts["own_fd"]]


# Protected paths


@attempt
def create_a_hook() -> Any:
    return write(".git/hooks/pre-commit")


@attempt
def create_the_servers_file() -> Any:
    return write(".mcp.json")


@attempt
def create_own_settings() -> Any:
    return write(".retinue/settings.json")


@attempt
def rename_over_a_protected_file() -> Any:
    write("mine")
    os.rename("mine", ".git/config")
    return True


@attempt
def rename_the_directory_of_protected_files() -> Any:
    os.rename(".git", "away")
    return True


@attempt
def exchange_the_directory_of_protected_files() -> Any:
    os.makedirs("mine2/hooks")
    return check(libc.renameat2(-100, b"mine2", -100, b".git", 2))


@attempt
def remove_a_protected_directory() -> Any:
    os.rmdir(".git/hooks")
    return True


@attempt
def change_modes_of_a_protected_file() -> Any:
    os.chmod(".git/config", 0o777)
    return True


@attempt
def remove_a_placeholder() -> Any:
    os.rmdir(".mcp.json")
    return True


# Namespaces and mounts


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
    return each(["/usr", "/", "/proc", ".git/hooks"], lambda p: libc.mount(None, p.encode(), None, 0x1020, None) == 0)


@attempt
def unmount_a_mask() -> Any:
    return each([".mcp.json", ".git/hooks", "/proc", "/usr"], lambda p: libc.umount2(p.encode(), 2) == 0)


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


# Devices and the kernel


@attempt
def make_a_device() -> Any:
    os.mknod("disk", 0o060666, os.makedev(254, 0))
    return True


@attempt
def open_devices() -> Any:
    paths = ["/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/fuse", "/dev/kvm", "/dev/port"]
    return each(paths, lambda p: os.open(p, os.O_RDONLY) >= 0)


@attempt
def fill_the_device_directory() -> Any:
    return write("/dev/retinue-test")


@attempt
def write_kernel_settings() -> Any:
    paths = ["kernel/core_pattern", "kernel/hostname", "vm/drop_caches", "kernel/modprobe", "fs/file-max"]
    return each([f"/proc/sys/{p}" for p in paths], lambda p: os.open(p, os.O_WRONLY) >= 0)


@attempt
def press_system_keys() -> Any:
    return write("/proc/sysrq-trigger")


@attempt
def read_kernel_memory() -> Any:
    return each(["/proc/kcore", "/proc/kmsg", "/dev/mem"], lambda p: os.open(p, os.O_RDONLY) >= 0)


@attempt
def write_control_groups() -> Any:
    return each(["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/pids/cgroup.procs"], write) or os.path.exists("/sys/fs")


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


# Other processes


@attempt
def see_the_runtime() -> Any:
    return [p for p in glob.glob("/proc/[0-9]*") if facts["token"] in read(f"{p}/cmdline")]


@attempt
def read_every_environment() -> Any:
    return [p for p in glob.glob("/proc/[0-9]*/environ") if facts["canary"] in read(p)]


@attempt
def ask_for_all_environments() -> Any:
    told = subprocess.run(["/bin/sh", "-c", "ps eaux 2>/dev/null; env; cat /proc/1/environ"], capture_output=True)
    return facts["canary"].encode() in told.stdout


@attempt
def kill_outside() -> Any:
    os.kill(facts["victim"], signal.SIGKILL)
    return True


@attempt
def trace_outside() -> Any:
    return check(libc.ptrace(16, facts["victim"], None, None))


@attempt
def raise_limits() -> Any:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    return True


@attempt
def become_more_important() -> Any:
    os.nice(-5)
    return True


@attempt
def become_another_user() -> Any:
    os.setuid(12345)
    return True


@attempt
def give_a_file_away() -> Any:
    write("given")
    os.chown("given", 12345, 12345)
    return True


@attempt
def run_a_setuid_program() -> Any:
    return shell("sudo -n true || su -c true nobody < /dev/null || mount -t tmpfs none /tmp")


@attempt
def type_into_the_terminal() -> Any:
    done = []
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):
            fcntl.ioctl(fd, 0x5412, b"x")
            done.append(fd)
    with contextlib.suppress(OSError), open("/dev/tty") as tty:
        fcntl.ioctl(tty, 0x5412, b"x")
        done.append(3)
    own, _ = os.openpty()
    with contextlib.suppress(OSError):
        fcntl.ioctl(own, 0x5412, b"x")
        done.append(4)
    return done


# Network


@attempt
def connect_by_tcp() -> Any:
    return connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", facts["tcp"]))


@attempt
def connect_by_tcp_6() -> Any:
    return connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", facts["tcp"]))


@attempt
def send_by_udp_outside() -> Any:
    return connect(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9))


@attempt
def connect_to_an_abstract_socket() -> Any:
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + facts["abstract"])


@attempt
def connect_to_a_socket_file() -> Any:
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, facts["socket"])


@attempt
def connect_to_well_known_sockets() -> Any:
    paths = [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/dbus/system_bus_socket",
        "/run/containerd/containerd.sock",
    ]
    paths += [os.environ.get("SSH_AUTH_SOCK", "/run/none"), "/run/user/0/bus"]
    return each(paths, lambda p: connect(socket.AF_UNIX, socket.SOCK_STREAM, p))


@attempt
def talk_to_the_hypervisor() -> Any:
    socket.socket(40, socket.SOCK_STREAM)
    return True


@attempt
def use_raw_sockets() -> Any:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    return True


@attempt
def use_packet_sockets() -> Any:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)
    return True


@attempt
def use_kernel_cryptography() -> Any:
    socket.socket(38, socket.SOCK_SEQPACKET)
    return True


@attempt
def resolve_a_name() -> Any:
    return socket.getaddrinfo("example.com", 80)


# So that nobody can say that everything fails here


@attempt
def control_write_the_workspace() -> Any:
    return write("allowed")


@attempt
def control_write_temporary_files() -> Any:
    return write("/tmp/allowed")


@attempt
def control_run_programs() -> Any:
    return shell("ls /usr | grep -q bin")


@attempt
def control_unix_sockets() -> Any:
    a, b = socket.socketpair()
    a.send(b"x")
    return b.recv(1) == b"x"


def main() -> None:
    facts.update(json.loads(sys.stdin.read() if len(sys.argv) < 2 else read(sys.argv[1])))
    facts["own_fd"] = -1
    for name, function in ATTEMPTS.items():
        if name == "become_another_user":
            continue  # last: it cannot be undone
        report(name, function)
    report("become_another_user", ATTEMPTS["become_another_user"])


def report(name: str, function: Callable[[], Any]) -> None:
    try:
        result, error = function(), ""
    except Exception as stopped:
        result, error = None, f"{type(stopped).__name__}: {stopped}"
    sys.stdout.write(
        json.dumps({"name": name, "escaped": bool(result), "result": repr(result)[:200], "error": error}) + "\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
