"""Deletes trees of a store in memory, and finds the trees that name an artifact."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from retinue.core.changes import Changes
from retinue.store.artifact_files import names_in
from retinue.store.memory_data import MemoryData, conversations_below, messages_in, runs_below

dumps = msgspec.json.Encoder(enc_hook=repr).encode


def forget_tree(data: MemoryData, root: str) -> None:
    """Delete the conversation of a run and everything below it; forks outside of it keep what they
    show."""
    tree = conversations_below(data, root)
    ids = dict.fromkeys(runs_below(data, root))
    for id, conversation in data.conversations.items():
        base = conversation.base
        if base is not None and base.conversation in tree and id not in tree:
            conversation.messages = dict(sorted(messages_in(data, id, 0, None)))
            conversation.base = None
    messages = [message for id in tree for message in data.conversations[id].messages.values()]
    for id in ids:
        spec = data.specs.pop(id)
        data.children.pop(id, None)
        if spec.parent in data.children:
            data.children[spec.parent].remove(id)
        del data.runs[id]
        data.accounts.pop(id, None)
        data.task_lists.pop(id, None)
    for id in tree:
        del data.conversations[id]
    for other in data.conversations.values():
        other.below = [id for id in other.below if id not in tree]
    data.mail = {key: mail for key, mail in data.mail.items() if key[0] not in ids}
    data.deliveries = {key: d for key, d in data.deliveries.items() if d.run not in ids}
    trees = {root for root in ids if not any(spec.root == root for spec in data.specs.values())}
    lost_messages = (
        (*messages, *(row.entry for row in data.log if row.tree in trees)) if data.artifacts else ()
    )
    named = artifact_names(data, lost_messages) - data.waiting.keys()
    data.log = [
        msgspec.structs.replace(row, entry=None) if row.run in ids else row
        for row in data.log
        if row.tree not in trees
    ]
    if named:
        collect_artifacts(data, named)


def artifact_names(data: MemoryData, values: Iterable[object]) -> set[str]:
    """The artifacts that these name."""
    return {name for value in values for name in names_in(dumps(value)) if name in data.artifacts}


def roots_naming(data: MemoryData, name: str) -> list[str]:
    """The root runs of the trees that name an artifact."""
    values: list[tuple[str, object]] = [(row.tree, row.entry) for row in data.log]
    for spec in data.specs.values():
        values += [(spec.root, m) for m in data.conversations[spec.conversation].messages.values()]
        values += [(spec.root, noted) for noted in data.task_lists.get(spec.id, {}).values()]
    roots = {root for root, value in values if name in artifact_names(data, (value,))}
    return sorted(root for root in roots if root in data.specs)


def name_artifacts(data: MemoryData, changes: Changes) -> None:
    """What waits for the commit that names it may have found it."""
    names = artifact_names(data, changes.entries)
    data.waiting = {
        name: n_steps - 1 for name, n_steps in data.waiting.items() if name not in names and n_steps
    }


def collect_artifacts(data: MemoryData, names: set[str]) -> None:
    """Delete those that nothing names."""
    messages = (
        message
        for conversation in data.conversations.values()
        for message in conversation.messages.values()
    )
    task_lists = (noted for task_list in data.task_lists.values() for noted in task_list.values())
    remaining = (
        *(row.entry for row in data.log),
        *data.runs.values(),
        *messages,
        *task_lists,
        *data.mail.values(),
    )
    for name in names - artifact_names(data, remaining):
        del data.artifacts[name]
