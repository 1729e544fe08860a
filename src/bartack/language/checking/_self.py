"""`self`: its session and mailboxes, the methods of a trait; and who sends to which mailbox."""

from __future__ import annotations

from collections.abc import Sequence

from bartack.language.checking._delegate import delegate
from bartack.language.checking._expressions import not_a_value
from bartack.language.checking._functions import call_function
from bartack.language.checking._library import SELF_MEMBERS, SESSION_MEMBERS
from bartack.language.checking._mail import (
    RECEIVING,
    SENDING,
    MailUse,
    Part,
    message_fields,
    message_literals,
)
from bartack.language.checking._members import follow
from bartack.language.checking._types import ANY, MAILBOX, SESSION, STRING, Type
from bartack.language.checking._walk import Walk
from bartack.language.checking.program import Declared
from bartack.language.syntax import _tree as tree


def self_chain(walk: Walk, node: tree.Chain) -> Type:
    """Check a chain that starts with `self`."""
    first = node.links[0]
    if not isinstance(first, tree.Member):
        walk.expression(node.base)
        return follow(walk, node, 0, ANY)
    second = node.links[1] if len(node.links) > 1 else None
    name = first.name.name
    if name in walk.body.methods:
        return _own_method(walk, node, first, walk.body.methods[name])
    if name == "delegate":
        if isinstance(second, tree.Call):
            return follow(walk, node, 2, delegate(walk, node, second))
        not_a_value(walk, first.name, "`self.delegate` is a function")
        return follow(walk, node, 1, ANY)
    if name == "session":
        return _session(walk, node)
    if name and name not in _SELF_VALUES:
        _no_self_member(walk, "self", first, (*SELF_MEMBERS, *walk.body.methods))
    return follow(walk, node, 1, _SELF_VALUES.get(name, ANY))


_SELF_VALUES: dict[str, Type] = {"path": STRING, "inbox": MAILBOX}


def _no_self_member(walk: Walk, owner: str, link: tree.Member, known: Sequence[str]) -> None:
    near = walk.suggest(link.name.name, known)
    if owner == "self" and link.name.name in SESSION_MEMBERS:
        near = f"session.{link.name.name}"
    label = f"did you mean `{near}`?" if near else ""
    has = ", ".join(f"`{name}`" for name in known)
    walk.report("PW124", f"`{owner}` has no `{link.name.name}`; it has {has}", link.name, label=label)


def _own_method(walk: Walk, node: tree.Chain, link: tree.Member, method: tree.Declaration) -> Type:
    declared = Declared(walk.module.id, method, walk.body.trait)
    walk.module.members[link] = declared
    second = node.links[1] if len(node.links) > 1 else None
    if isinstance(second, tree.Call):
        return follow(walk, node, 2, call_function(walk, declared, second, f"self.{link.name.name}"))
    not_a_value(walk, link.name, f"`self.{link.name.name}` is a function")
    return follow(walk, node, 1, ANY)


def _session(walk: Walk, node: tree.Chain) -> Type:
    second = node.links[1] if len(node.links) > 1 else None
    if not isinstance(second, tree.Member):
        return follow(walk, node, 1, SESSION)
    name = second.name.name
    if name == "mailbox":
        return _mailbox(walk, node)
    if name and name not in SESSION_MEMBERS:
        _no_self_member(walk, "self.session", second, tuple(SESSION_MEMBERS))
        return follow(walk, node, 2, ANY)
    return follow(walk, node, 2, STRING)


# Mailboxes


def _mailbox(walk: Walk, node: tree.Chain) -> Type:
    """`self.session.mailbox` and what follows."""
    which = node.links[2] if len(node.links) > 2 else None
    name: str | None = None
    if isinstance(which, tree.Member):
        name = which.name.name
    elif isinstance(which, tree.Index):
        walk.expression(which.index)
        index = tree.bare(which.index)
        name = index.literal if isinstance(index, tree.String) else None
    else:
        note_mail(walk, None, "both", node)
        if isinstance(which, tree.Call):
            helps = (
                'write `self.session.mailbox.name`, or `self.session.mailbox["name"]` for a computed name',
            )
            walk.report("PW141", "`self.session.mailbox` cannot be called", which, helps=helps)
        return follow(walk, node, 2, ANY)
    if name != "":
        _note_use(walk, node, name)
    return follow(walk, node, 3, MAILBOX)


def _note_use(walk: Walk, node: tree.Chain, name: str | None) -> None:
    what = node.links[3] if len(node.links) > 3 else None
    call = node.links[4] if len(node.links) > 4 else None
    if not isinstance(what, tree.Member) or not isinstance(call, tree.Call):
        note_mail(walk, name, "both", node)
        return
    word = what.name.name
    span = tree.Identifier(node.start, what.end, "")
    if word in SENDING:
        note_message(walk, name, span, call.arguments[0] if call.arguments else None)
    elif word in RECEIVING:
        use = note_mail(walk, name, "receive", span)
        if word == "receive" and all(isinstance(link, tree.AwaitMember) for link in node.links[5:]):
            walk.received[node] = use
    else:
        note_mail(walk, name, "both", span)


def library_mail(walk: Walk, name: str, call: tree.Call) -> None:
    """Note what functions of the library do with mailboxes."""
    arguments = call.arguments
    if name == "broadcast" and arguments:
        names = tree.bare(arguments[0])
        literal = isinstance(names, tree.Array)
        for element in names.elements if isinstance(names, tree.Array) else ():
            text = element.literal if isinstance(element, tree.String) else None
            note_message(walk, text, element, arguments[1] if len(arguments) > 1 else None)
        if not literal:
            note_mail(walk, None, "send", call)
    elif name == "monitor" and len(arguments) > 1:
        box = tree.bare(arguments[1])
        text = box.literal if isinstance(box, tree.String) else None
        note_mail(walk, text, "send", arguments[1])


def note_message(walk: Walk, name: str | None, at: tree.Node, message: tree.Expression | None) -> None:
    """Note that a message is sent."""
    use = note_mail(walk, name, "send", at)
    if message is not None:
        use.fields = message_fields(message)
        use.literals = message_literals(message)


def note_mail(walk: Walk, name: str | None, part: Part, at: tree.Node) -> MailUse:
    """Note one use of a mailbox, for the check of the whole program."""
    use = MailUse(name, part, walk.module.path, at.span)
    walk.mail.append(use)
    return use
