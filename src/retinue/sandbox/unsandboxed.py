"""Runs commands without a sandbox, only if the user chose this: with all permissions of the
runtime's user. What is kept: a clean environment, resource limits, and an end for every process
that still carries its tag."""

from __future__ import annotations

import uuid

from retinue.errors import ConfigError
from retinue.sandbox.base import Command, Guarantee, Sink
from retinue.sandbox.process import ProcessTree
from retinue.sandbox.resource_limits import find_groups
from retinue.sandbox.tagged_processes import TAG


class Unsandboxed:
    """Only with `unsafe_no_sandbox=True`; nothing in Retinue passes that by itself."""

    name = "none"
    guarantees = (
        Guarantee(
            "NO SANDBOX: commands have all permissions of this user, on files and network",
            is_weak=True,
        ),
        Guarantee("tagged processes are killed with the command, and at the next start"),
    )

    def __init__(self, *, unsafe_no_sandbox: bool = False) -> None:
        if unsafe_no_sandbox is not True:
            raise ConfigError("To run commands without a sandbox, pass unsafe_no_sandbox=True.")

    async def start(self, command: Command, sink: Sink) -> ProcessTree:
        group = find_groups().make(command.limits)
        joins = "".join('echo 0 > "$1" || exit 125; shift; ' for _ in group.folders)
        script = f'unset A B; {joins}exec "$@"'
        tag = command.tag or uuid.uuid4().hex
        tree = ProcessTree(sink, command.limits, tag, group=group, disks=command.write)
        argv = [
            "/bin/sh",
            "-c",
            script,
            "sh",
            *(f"{folder}/cgroup.procs" for folder in group.folders),
            *command.argv,
        ]
        fd = command.opened.get(command.cwd)
        where = command.cwd if fd is None else f"/proc/self/fd/{fd}"
        return await tree.launch(argv, {**command.env, TAG: tag}, (), cwd=where)
