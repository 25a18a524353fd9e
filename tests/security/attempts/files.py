"""Out through files: those outside of the workspace, and those in it that are protected."""

import glob
import os
from typing import Any

from .base import attempt, check, each, facts, libc, read, write


@attempt
def write_system_files() -> Any:
    return each(
        [
            f"{d}/retinue-test"
            for d in ("/etc", "/usr", "/usr/bin", "/bin", "/lib", "/opt", "/", "/var")
        ],
        write,
    )


@attempt
def overwrite_passwd() -> Any:
    return write("/etc/passwd")


@attempt
def make_directories_at_the_root() -> Any:
    return each(["/run", "/srv", "/home", "/boot"], lambda p: os.makedirs(f"{p}/x") or True)  # type: ignore[func-returns-value]


@attempt
def read_shadow() -> Any:
    return each(["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/ssh_host_rsa_key"], read)


@attempt
def read_secrets_of_the_home() -> Any:
    return each(
        [
            f"{facts['home']}/{n}"
            for n in (".ssh/id", ".aws/credentials", ".netrc", ".config/token")
        ],
        read,
    )


@attempt
def list_home_directories() -> Any:
    names = [
        name
        for d in ("/home", facts["home"], "/root")
        if os.path.isdir(d)
        for name in os.listdir(d)
    ]
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
    return each(
        [f"/proc/1/{d}{p}" for d in ("root", "cwd") for p in (facts["outside"], "/etc/shadow")],
        read,
    )


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
    results = [fd for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2]
    return [fd for fd in results if os.path.exists(f"/proc/self/fd/{fd}") and fd != facts["own_fd"]]


@attempt
def create_a_hook() -> Any:
    return write(".git/hooks/pre-commit")


@attempt
def control_appear_at_a_protected_name() -> Any:
    """It is taken away again, which the test looks for."""
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
