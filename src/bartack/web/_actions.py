"""Actions on runs: one list, offered as JSON below ``API`` and as forms of pages, which redirect back.

Each is the Python that the command line uses. It may wait for a process, so it runs in a thread, which does not keep the server
from ending: a run that was resumed is a process of its own, and what a run has been asked for it does without the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from bartack.core import typed
from bartack.errors import BartackError, QuestionAnsweredError, WebRefusedError
from bartack.runtime import Run
from bartack.runtime.client.answering import answer_question, user_name
from bartack.runtime.protocol.answers import read_typed
from bartack.runtime.rundir.layout import RunDir
from bartack.web._guard import parse_form
from bartack.web._refusals import API, JSON
from bartack.web._site import Site, site_of
from bartack.web._threads import in_thread
from bartack.web.following._shown import ShownRun
from bartack.web.reading._open import open_view
from bartack.web.reading._questions import first_answer

LAST: Final = 4
"""Characters of the id of a run that a person types to confirm."""
_SEE_OTHER: Final = 303
_LISTS: Final = frozenset({"set", "letters"})

Name = Annotated[str, msgspec.Meta(max_length=200)]
Words = Annotated[str, msgspec.Meta(max_length=4000)]


Fields = dict[str, list[str]]
"""The fields of a form; one with the same name several times is a list."""


class _Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What an action is given."""

    @classmethod
    def of_form(cls, fields: Fields) -> dict[str, object]:
        """The members, from the fields of a form. One that is left blank is missing."""
        given = {name: [one for one in values if one.strip()] for name, values in fields.items()}
        return {name: found if name in _LISTS else found[0] for name, found in given.items() if found}


class Answer(_Body):
    """Answer a question.

    Attributes:
        question: Its number, as ``q1``.
        value: The answer; a text is read as what was asked for.
    """

    question: Name
    value: msgspec.Raw

    @classmethod
    def of_form(cls, fields: Fields) -> dict[str, object]:
        """The form has the type of the question beside it; whether the answer fits is checked where it is taken."""
        text, asked = fields.pop("value", [""])[0], fields.pop("type", ["str"])[0]
        return {**super().of_form(fields), "value": read_typed(asked, text)}


class Resume(_Body):
    """Resume an interrupted or failed run.

    Attributes:
        update: Take the program's source as it is now; it must match the recorded steps.
        set: Settings that hold for the run from now on, each ``section.key=value``.
        unknown: What to do with a step whose outcome is not known.
        value: With ``done``: its outcome.
    """

    update: bool = False
    set: list[Words] = []
    unknown: Literal["retry", "done", "fail"] | None = None
    value: Any = None

    @classmethod
    def of_form(cls, fields: Fields) -> dict[str, object]:
        """The outcome is typed as JSON, or is a text."""
        text = fields.pop("value", [""])[0]
        return {
            **super().of_form(fields),
            "value": msgspec.json.decode(read_typed("json", text)) if text else None,
        }


class Interrupt(_Body):
    """Stop a run; it can be resumed."""


class Fail(_Body):
    """Fail a run; it can be resumed.

    Attributes:
        reason: Why, for people.
        confirm: The last characters of its id; forms have to have them.
    """

    reason: Words = ""
    confirm: Name | None = None

    @classmethod
    def of_form(cls, fields: Fields) -> dict[str, object]:
        """A person confirms it; a program that calls the API knows what it does."""
        return {"confirm": "", **super().of_form(fields)}


class Cancel(_Body):
    """Cancel a run for good.

    Attributes:
        confirm: The last characters of its id.
        reason: Why, for people.
    """

    confirm: Name
    reason: Words = ""


class Fork(_Body):
    """Create a run from the first part of another one; files are not rolled back.

    Attributes:
        at: An entry of the journal: the new run begins with everything up to the last outcome at or before it.
    """

    at: Annotated[int, msgspec.Meta(ge=1)]


class Letters(_Body):
    """Dead letters.

    Attributes:
        letters: Their ids, at least one.
    """

    letters: Annotated[list[Name], msgspec.Meta(min_length=1, max_length=1000)]

    @classmethod
    def of_form(cls, fields: Fields) -> dict[str, object]:
        """A table in which nothing is chosen sends none of them."""
        given = super().of_form(fields)
        if not given.get("letters"):
            raise WebRefusedError("choose at least one dead letter first", status=422)
        return given


class Action(NamedTuple):
    """Something that a person can do to a run.

    Attributes:
        name: The end of its address.
        body: What it is given.
        act: Does it; returns the members of the answer.
        to_new: A form leads to the run that it has made.
    """

    name: str
    body: type[_Body]
    act: Callable[[RunDir, Any], Mapping[str, object]]
    to_new: bool = False


def _to_act_on(run: RunDir) -> RunDir:
    return run.to_act_on() if isinstance(run, ShownRun) else run


def _open(run: RunDir) -> Run:
    """The run for programs; one of a database is resumed by its nodes."""
    return Run(_to_act_on(run), is_for_nodes=isinstance(run, ShownRun))


def _answer(run: RunDir, given: Answer) -> Mapping[str, object]:
    kept = answer_question(_to_act_on(run), given.question, bytes(given.value), f"{user_name()} (web)")
    return {"question": given.question, "kept": kept}


def _resume(run: RunDir, given: Resume) -> Mapping[str, object]:
    _open(run).resume(update=given.update, sets=given.set, unknown=given.unknown, value=given.value)
    return {}


def _interrupt(run: RunDir, given: Interrupt) -> Mapping[str, object]:
    _open(run).interrupt()
    return {}


def _fail(run: RunDir, given: Fail) -> Mapping[str, object]:
    if given.confirm is not None:
        _check_confirmed(run, given.confirm)
    _open(run).fail(given.reason or "failed by a person")
    return {}


def _cancel(run: RunDir, given: Cancel) -> Mapping[str, object]:
    _check_confirmed(run, given.confirm)
    _open(run).cancel(given.reason)
    return {}


def _check_confirmed(run: RunDir, confirm: str) -> None:
    if confirm.strip() != run.id[-LAST:]:
        raise WebRefusedError(f"type the last {LAST} characters of {run.id} to confirm", status=422)


def _fork(run: RunDir, given: Fork) -> Mapping[str, object]:
    return {"run": _open(run).fork(given.at).id}


def _retry(run: RunDir, given: Letters) -> Mapping[str, object]:
    return {"retried": _open(run).dead_letters.retry_messages({"ids": given.letters})}


def _purge(run: RunDir, given: Letters) -> Mapping[str, object]:
    return {"purged": _open(run).dead_letters.purge_messages({"ids": given.letters})}


ACTIONS: Final = (
    Action("answer", Answer, _answer),
    Action("resume", Resume, _resume),
    Action("interrupt", Interrupt, _interrupt),
    Action("fail", Fail, _fail),
    Action("cancel", Cancel, _cancel),
    Action("fork", Fork, _fork, to_new=True),
    Action("letters/retry", Letters, _retry),
    Action("letters/purge", Letters, _purge),
)


# Requests.


def _as_json(action: Action) -> BaseRoute:
    async def answer(request: Request) -> Response:
        if not request.headers["content-type"].startswith(JSON):
            raise WebRefusedError(f"send the body as {JSON}", status=400)
        body = await request.body()
        run, done = await _do(request, action, read_json(body or b"{}", action.body))
        return Response(msgspec.json.encode({"run": run.id, **done}), media_type=JSON)

    return Route(f"{API}/runs/{{run}}/{action.name}", answer, methods=["POST"])


def _as_form(action: Action) -> BaseRoute:
    async def answer(request: Request) -> Response:
        fields = parse_form(await request.body())
        fields.pop("csrf", None)
        back = fields.pop("back", [""])[0]
        run, done = await _do(request, action, read_form(fields, action.body))
        if request.headers.get("accept") == JSON:  # a script has sent the form, and stays on its page
            return Response(msgspec.json.encode({"run": run.id, **done}), media_type=JSON)
        page = f"/r/{done.get('run', run.id) if action.to_new else run.id}"
        return RedirectResponse(page if action.to_new or not is_own_page(back) else back, _SEE_OTHER)

    return Route(f"/r/{{run}}/{action.name}", answer, methods=["POST"])


async def _do(request: Request, action: Action, given: _Body) -> tuple[RunDir, Mapping[str, object]]:
    site, asked = site_of(request), str(request.path_params["run"])

    def act() -> tuple[RunDir, Mapping[str, object]]:
        run = site.find_run(asked)
        try:
            return run, action.act(run, given)
        finally:
            if isinstance(run, ShownRun):
                run.refresh()

    await site.look_for(asked)
    try:
        return await in_thread(act)
    except QuestionAnsweredError as error:
        raise await _with_first_answer(site, asked, error) from None


async def _with_first_answer(site: Site, asked: str, error: QuestionAnsweredError) -> QuestionAnsweredError:
    """The error with who was first and with what, as far as the journal or the inbox has it, without secrets."""
    try:
        view = await open_view(site, asked)
    except BartackError:
        return QuestionAnsweredError(error.question)
    by, answer = first_answer(view, error.question)
    hidden = view.hider.text
    return QuestionAnsweredError(error.question, by or hidden(error.by), answer or hidden(error.answer))


B = TypeVar("B", bound=_Body)


def read_json(body: bytes, kind: type[B]) -> B:
    """What an action is given, from JSON.

    Raises:
        WebRefusedError: It is not JSON (400), or not of this shape (422).
    """
    try:
        return typed.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise WebRefusedError(f"the body is wrong: {error}", status=422) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WebRefusedError(f"the body is not JSON: {error}", status=400) from None


def read_form(fields: Fields, kind: type[B]) -> B:
    """The same from the fields of a form.

    Raises:
        WebRefusedError: They do not fit.
    """
    try:
        return typed.convert(kind.of_form(fields), type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise WebRefusedError(f"the form is wrong: {error}", status=422) from None


def is_own_page(address: str) -> bool:
    """Whether an address is a page of this server, and cannot lead elsewhere."""
    return address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()


ROUTES: Final[list[BaseRoute]] = [make(action) for action in ACTIONS for make in (_as_json, _as_form)]
