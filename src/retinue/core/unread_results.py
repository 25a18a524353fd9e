"""Results that no run has read: of children that ended after their parent, when no run continued
its conversation and no channel was set. A run that continues the conversation later reads them
first."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from retinue.core.notices import child_notice, is_known, of_parent, skipped
from retinue.core.provenance import note_of
from retinue.core.shared import Shared
from retinue.core.spec import RunSpec
from retinue.core.state import Ended, Run
from retinue.core.values import Mail


def unread_results(
    parent: RunSpec,
    children: Iterable[tuple[RunSpec, Run]],
    senders: Collection[str],
    shared: Shared,
) -> tuple[Mail, ...]:
    """News of the children of a run that has ended; `told` are the children whose ends are in its
    conversation."""
    endings = [
        (run.state.ending, spec, run) for spec, run in children if isinstance(run.state, Ended)
    ]
    out = []
    for ending, spec, run in sorted(endings, key=lambda one: one[0].at):
        request, is_announced = spec.request, spec.request.announce and bool(spec.origin.channel)
        if spec.id in senders or request.join != "none" or not request.tell_parent or is_announced:
            continue
        if not is_known(ending) and not skipped(request, ending):
            words = of_parent(shared.definitions.get(parent.request.agent), spec)
            text = child_notice(words.notice, spec, run, ending, shared.limits.mail_cap)
            out.append(Mail(seq=0, text=text, sender=spec.id, kind="news", note=note_of(ending)))
    return tuple(out)
