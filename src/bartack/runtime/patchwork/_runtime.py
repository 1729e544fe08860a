"""``rt``: what the compiled functions of a Patchwork program call for everything they do.

A ``Runtime`` belongs to one worker. Its pure methods are in the modules beside it; here are calls, errors and steps. Every step is
performed by ``perform``, which knows its place in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NoReturn, Protocol, TypeVar

from bartack.errors import (
    BartackError,
    InternalError,
    JournalError,
    LimitExceededError,
    ReplayMismatchError,
    ShellError,
)
from bartack.runtime.context.context import Context
from bartack.runtime.context.definitions import Worker
from bartack.runtime.patchwork import _commands, _fiber, _library, _members, _patterns, _prompts
from bartack.runtime.patchwork import _operators as op
from bartack.runtime.patchwork import _values as values
from bartack.runtime.patchwork._delegate import SpecMaker, SpecValue, check_delegate_options, delegate_op
from bartack.runtime.patchwork._forms import shell_form, unsafe_form
from bartack.runtime.patchwork._mailboxes import DeliveryValue, MailboxValue
from bartack.runtime.patchwork._patterns import Written
from bartack.runtime.patchwork._places import own_error, place_of_error
from bartack.runtime.patchwork._program import Declaration, Function
from bartack.runtime.patchwork._prompts import WrittenTool
from bartack.runtime.patchwork._steps import STEPS
from bartack.runtime.protocol.values import plain_or_repr
from bartack.runtime.scheduler.operations import Counted, Op
from bartack.runtime.scheduler.results import ShellResult
from bartack.runtime.scheduler.scheduler import Scheduler
from bartack.supervision.forms import Form

T = TypeVar("T")

DEEPEST_CALL: Final = 500
At = tuple[int, int]
"""Line and column in the source."""

_UNCATCHABLE: Final = (ReplayMismatchError, JournalError, InternalError)


class Program(Protocol):
    """What a worker needs to know of its program."""

    files: dict[str, str]

    def find(self, module: str, function: str) -> Function:
        """A function of a module, by its Python name."""
        ...

    def declaration(self, function: Function) -> Declaration:
        """What is known of a function."""
        ...

    def worker(self, declaration: Declaration) -> Worker[..., object]:
        """A declaration as a worker of the runtime."""
        ...


class SucceedSignal(BaseException):
    """Ends the worker successfully, from any depth of calls."""


class Runtime:
    """Everything that the functions of one worker call."""

    def __init__(self, program: Program, ctx: Context, scheduler: Scheduler) -> None:
        self.program = program
        self.ctx = ctx
        self.scheduler = scheduler
        self.status = 0
        """The status of the last command."""
        self.args: list[object] = list(scheduler.facts.argv)
        self.path = ctx.path
        self.inbox = MailboxValue(self, ctx.inbox)
        self.session = values.SessionValue(
            ctx.session.id,
            values.iso_text(ctx.session.timestamp),
            str(ctx.session.dir),
            values.MailboxesValue(self.mailbox),
        )
        self.monitors: dict[str, str] = {}
        """The mailboxes that the monitors of this worker report to, by their refs."""
        self._mailboxes: dict[str, MailboxValue] = {}
        self._stack: list[Declaration] = []
        self._entry: Declaration | None = None
        self._held: DeliveryValue | None = None

    # Values.

    truth = staticmethod(values.truth)
    equal = staticmethod(values.equal)
    differ = staticmethod(op.differ)
    join = staticmethod(op.join)
    spliced = staticmethod(op.spliced)
    elements = staticmethod(op.elements)
    fields = staticmethod(op.fields)
    add = staticmethod(op.add)
    texts = staticmethod(op.texts)
    grown = staticmethod(op.grown)
    subtract = staticmethod(op.subtract)
    multiply = staticmethod(op.multiply)
    divide = staticmethod(op.divide)
    remainder = staticmethod(op.remainder)
    negate = staticmethod(op.negate)
    increase = staticmethod(op.increase)
    less = staticmethod(op.less)
    at_most = staticmethod(op.at_most)
    greater = staticmethod(op.greater)
    at_least = staticmethod(op.at_least)
    range = staticmethod(op.span)
    array = staticmethod(op.materialised)
    iterate = staticmethod(op.iterate)
    index = staticmethod(op.index)
    set_index = staticmethod(op.set_index)
    member = staticmethod(_members.member)
    set_member = staticmethod(_members.set_member)
    grow_member = staticmethod(_members.grow_member)
    grow_index = staticmethod(_members.grow_index)
    check = staticmethod(_patterns.check)
    match = staticmethod(_patterns.match)

    @staticmethod
    def pure(name: str, *arguments: object) -> object:
        """A function of the library without effect."""
        return _library.PURE[name](*arguments)

    def method(self, value: object, name: str, *arguments: object, what: str, at: At = (0, 0)) -> object:
        """``value.name(arguments)``."""
        return _members.call_method(value, name, arguments, self._apply, what)

    # Calls.

    def find(self, module: str, function: str) -> Function:
        """A function of another module."""
        return self.program.find(module, function)

    def call(self, function: Function, *arguments: object) -> object:
        """Call a function of the program in this worker.

        Raises:
            LimitExceededError: It calls itself too often.
        """
        if len(self._stack) >= DEEPEST_CALL:
            raise LimitExceededError("nested calls", DEEPEST_CALL)
        self._stack.append(self.program.declaration(function))
        try:
            return function(self, *arguments)
        finally:
            self._stack.pop()

    def builtin(self, name: str) -> Callable[[object], object]:
        """A function of the library that is handed over by name."""
        if name in STEPS:
            return lambda value: self.step(name, value)
        return lambda value: self.pure(name, value)

    def spec(self, function: Function, *arguments: object) -> SpecValue:
        """A worker with its arguments, for a delegate."""
        declaration = self.program.declaration(function)
        declaration.check_count(len(arguments))
        return SpecValue(self.program.worker(declaration), tuple(map(values.plain, arguments)))

    @staticmethod
    def spec_of(function: Function) -> SpecMaker:
        """Makes a spec of each element it is applied to."""
        return SpecMaker(function)

    def start(self, function: Function, *arguments: object, at: At) -> object:
        """Run a worker as a child and wait for its result."""
        spec = self.spec(function, *arguments)
        return self.perform(delegate_op([spec], None, single=True))[0]

    def delegate(self, specs: object, options: object = None, *, at: At) -> object:
        """Run workers side by side and wait for all of them."""
        if not values.is_array(specs):
            raise values.mismatch("delegate()", "an array of workers", specs)
        given: list[SpecValue] = []
        for place, spec in enumerate(specs):
            if not isinstance(spec, SpecValue):
                raise values.mismatch(f"delegate()[{place}]", "a worker with its arguments", spec)
            given.append(spec)
        if not given:
            check_delegate_options(options)
            return []
        return self.perform(delegate_op(given, options))

    def _apply(self, function: object, argument: object) -> object:
        """Apply a function that was handed over by name."""
        if isinstance(function, SpecMaker):
            return self.spec(function.function, argument)
        assert callable(function), "call_method() lets only functions through"
        try:
            declaration = self.program.declaration(function)
        except KeyError:
            return function(argument)
        if declaration.word == "worker":
            return self.start(function, argument, at=(0, 0))
        declaration.check_count(1)
        return self.call(function, argument)

    # Errors.

    def throw(self, value: object, *, at: At) -> NoReturn:
        """Throw a value; a caught error is passed on as it is."""
        if isinstance(value, values.Caught):
            raise value.error
        raise _library.thrown(values.plain(value))

    def caught(self, error: Exception) -> values.Caught:
        """An error as the program sees it; one that it must not handle is raised again."""
        error = own_error(error)
        if not isinstance(error, BartackError) or isinstance(error, _UNCATCHABLE):
            raise error
        at = place_of_error(error, self.program)
        facts = {
            name: plain_or_repr(value)
            for name, value in vars(error).items()
            if not name.startswith("_") and name not in {"message", "kind"}
        }
        fields = values.received(facts)
        assert values.is_object(fields)
        return values.Caught(error, at, fields)

    @staticmethod
    def succeed() -> NoReturn:
        """End the worker successfully."""
        raise SucceedSignal

    # Steps.

    @property
    def site(self) -> Declaration:
        """The declaration whose code runs."""
        if self._stack:
            return self._stack[-1]
        assert self._entry is not None, "steps are performed in a run only"
        return self._entry

    def perform(self, operation: Op[T]) -> T:
        """Perform an operation; if it is a step, it stands where the code that runs stands."""
        if isinstance(operation, Counted) and not operation.site:
            operation.site = self.site.site
        return _fiber.perform(operation)

    def perform_at(self, operation: Op[T], declaration: Declaration) -> T:
        """Perform an operation outside every function of the program, as if it stood in one."""
        self._entry = declaration
        return self.perform(operation)

    def step(self, name: str, *arguments: object, at: At = (0, 0)) -> object:
        """A function of the library that is a step."""
        return STEPS[name](self, *arguments)

    def out(self, channel: str, *parts: object) -> None:
        """Print or log."""
        self.scheduler.out(channel, " ".join(map(values.text, parts)), self.site.site)

    # Commands.

    word = staticmethod(_commands.word)
    arguments = staticmethod(_commands.arguments)
    command = staticmethod(_commands.command)
    group = staticmethod(_commands.group)
    commands = staticmethod(_commands.commands)
    nested = staticmethod(_commands.nested)
    bare = staticmethod(_commands.bare)

    def shell(self, written: object, *, form: str, at: At) -> object:
        """Run a command; ``form`` is what it is used as."""
        checked = form in {"statement", "text", "checked"}
        result = self.execute(_commands.as_form(written), check=checked, live=form in {"statement", "status"})
        if form in {"result", "checked"}:
            return result
        if form in {"statement", "status"} or (form == "maybe" and result.status != 0):
            return None
        return values.text(result)

    def unsafe_shell(self, text: str) -> ShellResult:
        """Let ``/bin/sh`` read a text."""
        return self.execute(unsafe_form(text), check=False)

    def execute(self, form: Form, *, check: bool, live: bool = False) -> ShellResult:
        """Execute a form, and remember its status."""
        site = self.site
        try:
            result = self.perform(
                shell_form(
                    self.scheduler, form, check=check, live=live, once=site.once, timeout_s=site.timeout_s
                )
            )
        except ShellError as error:
            self.status = error.status
            raise
        self.status = result.status
        return result

    # Prompts.

    def think(
        self,
        prompt: str,
        *,
        type: Written = "string",  # noqa: A002 - what the compiler writes
        tools: Sequence[WrittenTool] = (),
        may_decline: bool = False,
        at: At,
    ) -> object:
        """Ask an agent."""
        return _prompts.think(self, prompt, type, tools, may_decline=may_decline)

    def ask(
        self,
        question: str,
        *,
        type: Written = "string",  # noqa: A002 - what the compiler writes
        tools: Sequence[WrittenTool] = (),
        may_decline: bool = False,
        at: At,
    ) -> object:
        """Ask a person."""
        return _prompts.ask(self, question, type, tools, may_decline=may_decline)

    # Messages.

    def mailbox(self, name: object) -> MailboxValue:
        """The mailbox of this name.

        Raises:
            MailboxNameError: No mailbox can have this name.
        """
        if not isinstance(name, str | ShellResult):
            raise values.mismatch("the name of a mailbox", "string", name)
        name = values.text(name)
        found = self._mailboxes.get(name)
        if found is None:
            found = self._mailboxes[name] = MailboxValue(self, self.ctx.mailbox.get(name))
        return found

    def hold(self, delivery: DeliveryValue | None) -> None:
        """The worker takes a delivery, or none more; the one before is acknowledged."""
        before, self._held = self._held, None
        if before is not None:
            before.settle(ok=True)
        self._held = delivery

    # The whole.

    def run(self, declaration: Declaration, arguments: Iterable[object]) -> object:
        """Run the worker from its beginning to its end."""
        given = list(arguments)
        declaration.check_count(len(given))
        self._entry = declaration
        try:
            result = self.call(declaration.function, *given)
        except SucceedSignal:
            result = None
        except Exception as error:
            self._give_back(error)
            own = own_error(error)
            if own is error:
                raise
            raise own from None
        self.hold(None)
        return result

    def _give_back(self, error: Exception) -> None:
        """What the worker held when it threw goes back to its mailbox."""
        held, self._held = self._held, None
        if held is not None:
            with suppress(BartackError):
                held.settle(ok=False, reason=type(error).__name__)
