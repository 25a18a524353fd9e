"""Mail between runs: which runs may write to or end which, and how a message is sent."""

from __future__ import annotations

from retinue.core.events import ActionEvent, CancelAsked, MailReceived, StepTaken
from retinue.core.spec import SendMessage
from retinue.core.state import Run, Stopping
from retinue.core.step_context import StepContext
from retinue.core.tree import Tree
from retinue.core.values import Mail
from retinue.errors import Refused


def check_words(
    run: Run, ctx: StepContext, sends: tuple[SendMessage, ...], cancels: tuple[str, ...]
) -> None:
    """Messages go to the parent, to own children and to peers that were permitted; cancels go to
    own children."""
    sizes: dict[str, int] = {}
    for send in sends:
        if send.to not in ctx.tree.specs and (
            ctx.spec.resumes or send.to in (ctx.tree.permissions_of(run.id).comms or ())
        ):
            # a run of another tree: whether it can be reached is seen when the message gets there
            continue
        why = cannot_write(ctx.tree, run.id, send.to, sizes.get(send.to, 0))
        if why is not None:
            raise Refused("comms", why)
        sizes[send.to] = sizes.get(send.to, 0) + 1
    for id in cancels:
        if ctx.spec.resumes and id not in ctx.tree.specs:
            continue
        child = ctx.tree.runs.get(id) if id in ctx.tree.children.get(run.id, ()) else None
        if child is None or isinstance(child.state, Stopping):
            raise Refused("cancel", f"{id!r} is not an open child of this run")


def cannot_write(tree: Tree, sender: str, to: str, more: int = 0) -> str | None:
    """Why `sender` may not write to `to`, a run of this tree, now, or None. The sender may be of
    another tree, and the empty one is the user; `more` are on their way."""
    spec = tree.specs.get(to)
    if spec is None or not tree.is_live(to):
        return f"{to!r} is not an open run that you can send to"
    if sender in tree.specs:
        family = to == tree.specs[sender].parent or spec.parent == sender
        peers = tree.permissions_of(sender).comms
        if not family and (peers is None or to not in peers):
            return f"{to!r} is not an open run that you can send to"
    fan_in = tree.fans.get(to)
    if not sender and fan_in is not None and fan_in.refuses_mail:
        return (
            f"{to!r} is waiting for its children and takes no messages until they end. Send it then"
        )
    waiting = more + sum(1 for m in tree.mail.get(to, ()) if m.sender == sender)
    if waiting >= tree.shared.limits.mail_per_sender:
        return (
            f"{to!r} has {waiting} messages from you that it has not read yet. Wait until "
            "it reads them"
        )
    return None


def speak(run: Run, ctx: StepContext, event: ActionEvent) -> None:
    """Messages and cancellations go out, and texts for the channel."""
    sends, cancels = event.actions.sends, event.actions.cancels
    for n, text in enumerate(event.actions.posts):
        ctx.say(text, run.turn, event.index, "post", n)
    for send in sends:
        mail = Mail(seq=0, text=send.text, sender=run.id, steer=send.steer)
        if send.to in ctx.tree.specs:
            ctx.post_event(send.to, MailReceived(mail=mail))
        else:
            ctx.tree.letters.append((send.to, MailReceived(mail=mail), run.id))
    for id in cancels:
        reason = event.reason if isinstance(event, StepTaken) else ""
        end = CancelAsked(by=run.id, reason=reason, who="parent")
        if id in ctx.tree.specs:
            ctx.post_event(id, end)
        else:
            ctx.tree.letters.append((id, end, run.id))


def cannot_reach(
    tree: Tree, other: Tree, to: str, event: MailReceived | CancelAsked, sender: str
) -> str | None:
    """Why a run may not write to a run of another tree, or end it: it must have the permission, or
    continue the conversation of the run that started the other."""
    spec = other.specs[to]
    parent, writer = other.specs.get(spec.parent), tree.specs.get(sender)
    is_heir = (
        parent is not None and writer is not None and parent.conversation == writer.conversation
    )
    comms = (tree.permissions_of(sender).comms or ()) if writer is not None else ()
    is_permitted = isinstance(event, MailReceived) and (to in comms or to == tree.successor)
    if not is_heir and not is_permitted:
        return f"{to!r} is not a run that you can send to or cancel"
    return cannot_write(other, sender, to)
