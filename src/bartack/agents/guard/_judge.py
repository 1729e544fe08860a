"""Walks through a script in the order in which a shell would and applies the rules to each simple command.

It keeps track of the working directory, takes prefixes such as ``sudo`` off, and reads texts that another shell would read:
``sh -c``, ``eval``, a here-document, what ``printf`` feeds to a shell. ``_runners.py`` has the commands that run others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from bartack.agents.guard._feeds import fetches
from bartack.agents.guard._places import Places, Target
from bartack.agents.guard._reader import read
from bartack.agents.guard._rules import REASONS, check_write, rule_for
from bartack.agents.guard._runners import Runners
from bartack.agents.guard._scope import Scope
from bartack.agents.guard._syntax import Compound, Node, Redirect, Script, SimpleCommand, Step
from bartack.agents.guard._text import GLOBS, HOME, MARKS, SPLIT, TILDE, WORKDIR, NotParsedError, show
from bartack.agents.guard.policy import GuardPolicy
from bartack.core.text import cut

DEEPEST_TEXT: Final = 5
"""A text of a shell inside a text of a shell: deeper than this is not read."""
MOST_TEXTS: Final = 500
LONGEST_PIPE: Final = 64
MOST_PARTS: Final = 6000
"""After paths with this many parts in one command, all further ones count as unknown: each part is looked up on the disk."""
MOST_PREFIXES: Final = 20
_LEVELS: Final = 4
"""By how much each of them lowers how deep a text may be nested by itself, so that the stack is bounded."""
_LEAVING: Final = frozenset({"exit", "return", "break", "continue", "die"})
_SETTING: Final = frozenset(
    {"export", "declare", "typeset", "local", "readonly", "read", "unset", "printf", "mapfile", "readarray"}
)
_PLACES: Final = ("HOME", "PWD", "OLDPWD", "CDPATH")
_WRITING: Final = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})


class BrokenRule(NamedTuple):
    """A rule that a simple command breaks."""

    rule: str
    decision: str
    reason: str
    subject: str


class ScriptJudge:
    """One judgement of one text.

    Attributes:
        findings: The rules that were broken.
        commands: Every simple command as it was judged, in order.
        stages: If it is a list: gets every command as it stands after each prefix, also those inside other texts.
    """

    def __init__(self, policy: GuardPolicy, places: Places, tool: str, *, strict: bool = False) -> None:
        self.places = places
        self.findings: list[BrokenRule] = []
        self.commands: list[tuple[str, int, int]] = []
        self.stages: list[str] | None = None
        self._policy = policy
        self._rules = [rule for rule in policy.rules if rule.tool.match(tool)]
        self._unparsed = "deny" if strict else policy.unparsed
        self._runners = Runners(self)
        self._nesting = 0
        self._prefixes = 0
        self._parts = 0
        self._targets: dict[tuple[str, str | None], list[Target] | None] = {}
        self._texts = 0
        self._allowed = 0
        self._called: set[tuple[str, tuple[str | None, ...]]] = set()
        self._in_loop = False

    def judge(self, text: str, scope: Scope) -> None:
        """Judge a text that a shell reads in a scope."""
        if self._nesting > DEEPEST_TEXT or self._texts > MOST_TEXTS:
            self.report_unparsed(f"{_shortened(text)} (it is nested too deeply)")
            return
        self._texts += 1
        try:
            script = read(text, self._nesting * _LEVELS)
        except NotParsedError as error:
            self.report_unparsed(f"{_shortened(text)} ({error})")
            return
        self._nesting += 1
        self.run(script, scope)
        self._nesting -= 1

    def report(self, rule: str, subject: str) -> None:
        """Note a broken built-in rule."""
        if self._policy.builtin:
            self.findings.append(BrokenRule(rule, "deny", REASONS[rule], _shortened(subject)))

    def report_unparsed(self, subject: str) -> None:
        """Note that something is not known."""
        if not self._allowed and (self._policy.builtin or self._rules):
            self.findings.append(
                BrokenRule("unparsed", self._unparsed, REASONS["unparsed"], _shortened(subject))
            )

    # Scripts.

    def run(self, script: Script, scope: Scope) -> None:
        """Judge the commands of a script, in their order."""
        index = 0
        while index < len(script):
            end = index + 1
            while end < len(script) and script[end].operator == "|":
                end += 1
            following = script[end] if end < len(script) else None
            if end - index > 1:
                nodes = [step.node for step in script[index:end]]
                for place, node in enumerate(nodes):
                    self._node(node, scope.copy(), nodes[max(0, place - LONGEST_PIPE) : place], None)
            else:
                step = script[index]
                self._node(step.node, scope.copy() if step.is_background else scope, (), following)
            index = end

    def _node(self, node: Node, scope: Scope, upstream: Sequence[Node], following: Step | None) -> None:
        for nested in node.nested:
            self.run(nested.script, scope.copy())
        if node.redirects:
            self._redirects(node, scope)
        if isinstance(node, SimpleCommand):
            self._command(node, scope, upstream, following)
        else:
            self._compound(node, scope, upstream)

    def _compound(self, node: Compound, scope: Scope, upstream: Sequence[Node]) -> None:
        if node.kind == "subshell":
            self._feed_parts(node, scope.copy(), upstream)
        elif node.kind == "group":
            self._feed_parts(node, scope, upstream)
        elif node.kind == "loop":
            self._loop(node, scope)
        elif node.kind == "function":
            self._function(node, scope)
        else:
            for part in node.parts:
                before = scope.cwds
                self.run(part, scope)
                scope.add(before)

    def _feed_parts(self, node: Compound, scope: Scope, upstream: Sequence[Node]) -> None:
        """A group reads what is fed to it with its first command that reads anything; here: with any shell in it."""
        for part in node.parts:
            if upstream or node.redirects:
                for step in part:
                    if isinstance(step.node, SimpleCommand):
                        step.node.redirects = [*_inputs(node.redirects), *step.node.redirects]
                if upstream and part and part[0].operator != "|":
                    self._piped(part, scope, upstream)
                    continue
            self.run(part, scope)

    def _piped(self, part: Script, scope: Scope, upstream: Sequence[Node]) -> None:
        for place, step in enumerate(part):
            before = [one.node for one in part[:place]] if step.operator == "|" else []
            self._node(step.node, scope, [*upstream, *before], None)

    def _loop(self, node: Compound, scope: Scope) -> None:
        before = scope.cwds
        for part in node.parts:
            self.run(part, scope)
        if scope.cwds == before or self._in_loop:
            scope.add(before)
            return
        # The second round begins where the first one ended: the directory is not known any more.
        self._in_loop = True
        scope.cwds = (*before, None)
        for part in node.parts:
            self.run(part, scope)
        scope.cwds = (*before, None)
        self._in_loop = False

    def _function(self, node: Compound, scope: Scope) -> None:
        body = node.parts[0]
        scope.functions[node.name] = body
        if _feeds_itself(body, node.name):
            self.report("end-everything", f"{node.name}()")
        self.run(body, scope.copy())

    # Simple commands.

    def _command(
        self, command: SimpleCommand, scope: Scope, upstream: Sequence[Node], following: Step | None
    ) -> None:
        if command.assigns:
            self.assign(command.assigns, scope)
        words = command.words
        if not words:
            return
        name = words[0]
        if name in _SETTING and len(words) > 1:
            self.assign(words[1:], scope)
        if name in scope.functions:
            self._call(name, scope)
        elif name in scope.aliases and name not in self._active_aliases(scope, name):
            self._expand_alias(command, scope, upstream)
            return
        if name in {"cd", "chdir", "pushd", "popd"}:
            self._change_directory(words, scope, following)
        start = len(self.findings)
        self.apply(words, command, scope, upstream)
        self.commands.append((" ".join(map(show, words)), start, len(self.findings)))

    def _active_aliases(self, scope: Scope, name: str) -> tuple[str, ...]:
        value = scope.aliases[name].split()
        return (name,) if not value or value[0] == name else ()

    def _expand_alias(self, command: SimpleCommand, scope: Scope, upstream: Sequence[Node]) -> None:
        try:
            script = read(scope.aliases[command.words[0]])
        except NotParsedError:
            self.report_unparsed(command.words[0])
            return
        for step in script[:-1]:
            self._node(step.node, scope, upstream, None)
        last = script[-1].node if script else None
        if isinstance(last, SimpleCommand):
            made = SimpleCommand([*last.words, *command.words[1:]])
            made.redirects, made.nested = command.redirects, last.nested
            inner = scope.copy()
            del inner.aliases[command.words[0]]
            self._node(made, inner, upstream, None)

    def _call(self, name: str, scope: Scope) -> None:
        key = (name, scope.cwds)
        if key not in self._called:
            self._called.add(key)
            self.run(scope.functions[name], scope)

    def assign(self, assigns: list[str], scope: Scope) -> None:
        """See ``Judging``."""
        scope.assigns = True
        for assign in assigns:
            if assign.startswith(_PLACES):
                scope.has_home = scope.has_home and not assign.startswith("HOME")
                if not assign.startswith("HOME"):
                    scope.enter((None,))

    def _change_directory(self, words: list[str], scope: Scope, following: Step | None) -> None:
        operands = [word for word in words[1:] if word not in {"-L", "-P", "-e", "-@", "--"}]
        if words[0] == "popd" or (words[0] == "pushd" and not operands):
            scope.enter((None,))
            return
        word = operands[0] if operands else TILDE
        if word == "-":
            scope.enter(scope.before)
            return
        old, found = scope.cwds, self.directories(word, scope)
        scope.enter(found)
        if not _succeeds(following) and any(one is None or not os.path.isdir(one) for one in found):
            scope.add(old)

    def directories(self, word: str, scope: Scope) -> tuple[str | None, ...]:
        """See ``Judging``."""
        found: list[str | None] = []
        for cwd in scope.cwds:
            targets = self.targets(word, cwd, scope)
            found += [None] if targets is None or len(targets) > 1 else [targets[0].path]
        return tuple(found)

    def targets(self, word: str, cwd: str | None, scope: Scope) -> list[Target] | None:
        """The places that a word names in a directory; ``None``: unknown."""
        if not scope.has_home and (TILDE in word or HOME in word):
            return None
        key = (word, cwd)
        if key not in self._targets:
            self._parts += word.count("/") + (cwd or "").count("/") + 1
            self._targets[key] = self.places.targets(word, cwd) if self._parts < MOST_PARTS else None
        return self._targets[key]

    def case(self, words: list[str], scope: Scope) -> CommandCase:
        """See ``Judging``."""
        return CommandCase(self, words, scope)

    def apply(self, words: list[str], node: Node, scope: Scope, upstream: Sequence[Node] = ()) -> None:
        """Judge the words of a command; its prefixes are taken off one after the other."""
        if self.stages is not None:
            self.stages.append(" ".join(map(show, words)))
        allowed = self._own_rules(words)
        self._allowed += allowed
        self._prefixes += 1
        name = self._name(words[0], node, scope)
        if name is None or self._prefixes > MOST_PREFIXES:
            self.report_unparsed(show(words[0]))
        elif not self._runners.run(name, words, node, scope, upstream):
            rule = rule_for(name)
            if rule is not None:
                rule(CommandCase(self, words, scope), [name, *words[1:]])
        self._allowed -= allowed
        self._prefixes -= 1

    def _own_rules(self, words: list[str]) -> int:
        """Apply the rules of the project; 1 if one of them allows the command."""
        if not self._rules:
            return 0
        text = " ".join(map(show, words))
        short = " ".join([show(words[0]).rsplit("/", 1)[-1], *map(show, words[1:])])
        found = [rule for rule in self._rules if rule.match.match(text) or rule.match.match(short)]
        strict = [rule for rule in found if rule.decision != "allow"]
        self.findings += [
            BrokenRule(rule.id, rule.decision, rule.reason, _shortened(text)) for rule in strict
        ]
        return 1 if found and not strict else 0

    def _name(self, word: str, command: Node, scope: Scope) -> str | None:
        """The name of a program without its directory; ``None``: it is not known."""
        if not MARKS.search(word):
            name = word.rsplit("/", 1)[-1]
            return name.casefold() if self.places.folds else name
        tail = word.rsplit("/", 1)[-1]
        if "/" not in word or not tail or MARKS.search(tail) or GLOBS.search(word):
            return None
        # What is not quoted can be several words; a path in a variable that nothing here sets is taken for one.
        if SPLIT in word[1:] or (word[0] == SPLIT and (word[1] != "/" or scope.assigns or command.nested)):
            return None
        return tail

    def _redirects(self, node: Node, scope: Scope) -> None:
        targets = [
            one.target for one in node.redirects if one.operator in _WRITING and not one.target.isdigit()
        ]
        if targets:
            check_write(CommandCase(self, [f"> {targets[0]}"], scope), targets)

    def is_fetching(self, node: Node) -> bool:
        """Whether something inside the words of a command comes from the network."""
        return any(fetches(nested.script) for nested in node.nested)


class CommandCase:
    """One simple command before the rules; see ``Case``."""

    def __init__(self, judge: ScriptJudge, words: list[str], scope: Scope) -> None:
        self.places = judge.places
        self.is_elsewhere = scope.is_elsewhere
        self._judge = judge
        self._words = words
        self._scope = scope

    def targets(self, word: str) -> list[Target] | None:
        """See ``Case``."""
        found: list[Target] = []
        absolute = word.startswith(("/", TILDE, HOME)) and WORKDIR not in word
        for cwd in self._scope.cwds[:1] if absolute else self._scope.cwds:
            targets = self._judge.targets(word, cwd, self._scope)
            if targets is None:
                return None
            found += targets
        return found

    def deny(self, rule: str, about: str = "") -> None:
        """See ``Case``."""
        text = _shortened(" ".join(map(show, self._words[:40])))
        self._judge.report(rule, text if not about or about in text else f"{text} ({_shortened(about, 80)})")


def _inputs(redirects: list[Redirect]) -> list[Redirect]:
    return [one for one in redirects if one.operator in {"<", "<<", "<<<"}]


def _succeeds(following: Step | None) -> bool:
    """Whether what follows runs only where the command before it succeeded."""
    if following is None or following.operator == "&&":
        return True
    node = following.node
    leaves = isinstance(node, SimpleCommand) and bool(node.words) and node.words[0] in _LEAVING
    return following.operator == "||" and leaves


def _feeds_itself(body: Script, name: str) -> bool:
    """Whether a function starts itself beside itself: through a pipe, or in the background."""
    stack = [body]
    while stack:
        script = stack.pop()
        for index, step in enumerate(script):
            node = step.node
            if isinstance(node, Compound):
                stack += node.parts
            elif node.words[:1] == [name]:
                after = script[index + 1 : index + 2]
                piped = step.operator == "|" or (bool(after) and after[0].operator == "|")
                if piped or step.is_background:
                    return True
    return False


def _shortened(text: str, most: int = 200) -> str:
    text = " ".join(text.split())
    return cut(text, most)
