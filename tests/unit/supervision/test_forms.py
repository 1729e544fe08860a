from __future__ import annotations

import errno
import os
import random
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from tests.unit.supervision.form_keeper import Done, FormKeeper, captured, form, into, run, words

from bartack.supervision.forms import (
    CAPTURE_LIMIT,
    LIMIT_SIGNAL,
    Bare,
    Duplicate,
    Form,
    Group,
    Pipeline,
    Redirect,
    SimpleCommand,
    Word,
    plain_of,
)
from bartack.supervision.parent.wire import Exited, Gone, Started
from bartack.supervision.process.tree import descendants

ON_LINUX = pytest.mark.skipif(
    sys.platform != "linux",
    reason="NOT TESTED on this system: only Linux has /proc/self/status and signals for the death of a parent",
)

NASTY = "'\"`$(){}[]*?~!#&;|<>\\ \t\n-=%é🙂ab./"


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FormKeeper]:
    with FormKeeper(tmp_path_factory.mktemp("keeper")) as keeper:
        yield keeper


def then(first: SimpleCommand | Group, joint: Literal["&&", "||"], *rest: SimpleCommand | Group) -> Form:
    """A list of single commands with the same joint between all of them."""
    return Form(Pipeline([first]), [(joint, Pipeline([one])) for one in rest])


def sh(text: str) -> SimpleCommand:
    """A program that does something a test needs; nothing of Bartack's makes such a text."""
    return run("sh", "-c", text)


# Words.


def random_texts(count: int) -> list[str]:
    """Texts that every shell would make something else of; the first are those that people try first."""
    dice = random.Random(20260717)
    texts = ["", " ", "-n", "--", "-x", "*", "~", "$(touch x)", "`touch x`", "a b", "'", '"', "\n", "|", "&&"]
    while len(texts) < count:
        texts.append("".join(dice.choices(NASTY, k=dice.randint(0, 12))))
    return texts


TEXTS = random_texts(1000)


def written(argv: list[str]) -> str:
    """What ``printf`` writes when it gets these arguments."""
    return "".join(f"{text}\0" for text in argv)


def printed(texts: list[str]) -> SimpleCommand:
    """A command that writes its arguments, with a NUL after each: nothing else can be taken for it."""
    return run("printf", r"%s\0", *texts)


POSITIONS: dict[str, Callable[[SimpleCommand], Form]] = {
    "plain": form,
    "first of a pipeline": lambda command: form(command, run("cat")),
    "last of a pipeline": lambda command: form(run("true"), command),
    "after &&": lambda command: then(run("true"), "&&", command),
    "after ||": lambda command: then(run("false"), "||", command),
    "before &&": lambda command: then(command, "&&", run("true")),
    "group": lambda command: form(Group(form(command))),
    "group in a pipeline": lambda command: form(Group(then(command, "&&", run("true"))), run("cat")),
    "after cd": lambda command: then(run("cd", "/"), "&&", command),
}


@pytest.mark.parametrize("position", POSITIONS)
def test_every_text_is_exactly_one_argument(keeper: FormKeeper, position: str) -> None:
    done = keeper.run(POSITIONS[position](printed(TEXTS)))

    assert done == Done(0, written(TEXTS))


def test_every_text_is_one_argument_inside_a_word(keeper: FormKeeper) -> None:
    inner = captured(run("printf", r"%s\001", *TEXTS))

    done = keeper.run(form(run("printf", r"%s\0", inner)))

    assert done == Done(0, written(["".join(f"{text}\1" for text in TEXTS)]))


def test_every_text_is_the_value_of_a_variable(keeper: FormKeeper) -> None:
    env: list[tuple[str, Word]] = [(f"V{number}", [text]) for number, text in enumerate(TEXTS)]
    shown = SimpleCommand(words("env", "-0"), env=env)

    for wanted in (form(shown), form(Group(form(shown)))):
        lines = keeper.run(wanted).stdout.split("\0")

        assert [line for line in lines if line.startswith("V")] == [f"{name}={part[0]}" for name, part in env]


def test_every_text_is_the_name_of_a_file_to_write(keeper: FormKeeper, tmp_path: Path) -> None:
    names = sorted({text.replace("/", "_") for text in TEXTS} - {"", ".", ".."})
    first, *rest = [SimpleCommand(words(":"), redirects=[Redirect(1, ">", [name])]) for name in names]

    done = keeper.run(then(first, "&&", *rest), tmp_path)

    assert done == Done(0, "")
    assert sorted(os.listdir(tmp_path)) == names


def test_a_value_is_one_argument_beside_other_parts(keeper: FormKeeper) -> None:
    word: Word = [Bare("--out="), "a b", Bare("/x"), "*", ""]

    assert keeper.run(form(run("printf", "[%s]", word, [], [""]))) == Done(0, "[--out=a b/x*][][]")


def test_a_form_inside_a_word_loses_its_last_newlines_only(keeper: FormKeeper) -> None:
    inner = captured(run("printf", r"\n a\n b\n\n"))

    assert keeper.run(form(run("printf", "[%s]", inner))).stdout == "[\n a\n b]"


def test_a_form_inside_a_word_runs_where_its_command_does(keeper: FormKeeper, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    done = keeper.run(then(run("cd", "in"), "&&", run("echo", captured(run("pwd")))), tmp_path)

    assert done.stdout == f"{tmp_path}/in\n"


@pytest.mark.parametrize(
    "inner",
    [
        captured(sh("exit 3")),
        captured(Group(form(run("echo", captured(sh("exit 3")))))),
    ],
    ids=["command", "group"],
)
def test_a_form_that_fails_inside_a_word_ends_all_of_it(keeper: FormKeeper, inner: Word) -> None:
    failing = run("echo", inner)

    assert keeper.run(then(failing, "||", run("echo", "on"))) == Done(3, "")
    assert keeper.run(then(Group(form(failing)), "||", run("echo", "on"))) == Done(3, "")
    assert keeper.run(then(Group(form(Group(form(failing)), run("cat"))), "||", run("echo", "on"))) == Done(
        3, ""
    )


def test_a_form_inside_a_word_that_writes_too_much_ends_all_of_it(keeper: FormKeeper) -> None:
    endless = captured(run("head", "-c", str(CAPTURE_LIMIT + 1), "/dev/zero"))
    in_group = then(Group(form(run(":", endless))), "||", run("echo", "on"))

    assert keeper.run(in_group) == Done(-LIMIT_SIGNAL, "")


def test_a_word_cannot_be_what_has_a_nul_in_it(keeper: FormKeeper) -> None:
    done = keeper.run(form(run("echo", captured(run("printf", r"a\0b")))))

    assert (done.status, done.stdout) == (1, "")
    assert "NUL" in done.stderr


# Names of files.


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.c", "a.c", ".hidden.c", "sub/d.c", "sub/deep/e.c", "sub/.x/f.c", "star*/g.c", "[x]"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ([Bare("*.c")], ["a.c", "b.c"]),
        ([Bare("?.c")], ["a.c", "b.c"]),
        ([Bare("[!a].c")], ["b.c"]),
        ([Bare(".*.c")], [".hidden.c"]),
        ([".", Bare("*.c")], [".hidden.c"]),
        ([Bare("**/*.c")], ["a.c", "b.c", "star*/g.c", "sub/d.c", "sub/deep/e.c"]),
        ([Bare("sub/**")], ["sub/d.c", "sub/deep", "sub/deep/e.c"]),
        ([Bare("s*/")], ["star*/", "sub/"]),
        (["star*", Bare("/*.c")], ["star*/g.c"]),
        (["s*", Bare("/*.c")], ["s*/*.c"]),
        (["s*", Bare("*")], ["s**"]),
        (["star*", Bare("?/g.c")], ["star*?/g.c"]),
        (["star", Bare("?/g.c")], ["star*/g.c"]),
        (["*"], ["*"]),
        ([Bare("*.none")], ["*.none"]),
        (["[", Bare("*")], ["[x]"]),
        ([Bare("[")], ["["]),
        ([Bare("sub/"), "d", Bare(".?")], ["sub/d.c"]),
        ([Bare("*/d.c")], ["sub/d.c"]),
        ([Bare("{a,b}.c")], ["{a,b}.c"]),
    ],
)
def test_only_bare_text_stands_for_names(
    keeper: FormKeeper, tree: Path, word: Word, found: list[str]
) -> None:
    done = keeper.run(form(run("printf", r"%s\0", word), run("cat")), tree)

    assert done.stdout == written(found)


def test_names_below_the_root_are_found(keeper: FormKeeper, tree: Path) -> None:
    done = keeper.run(form(run("echo", [f"{tree}/", Bare("*.c")])))

    assert done.stdout == f"{tree}/a.c {tree}/b.c\n"


def test_a_target_is_never_looked_for(keeper: FormKeeper, tree: Path) -> None:
    command = SimpleCommand(words("echo", "x"), redirects=[Redirect(1, ">", [Bare("?.c")])])

    keeper.run(form(command), tree)

    assert (tree / "?.c").read_text() == "x\n"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ([Bare("~")], "/ho*me"),
        ([Bare("~/x")], "/ho*me/x"),
        (["~"], "~"),
        ([Bare("~"), "x"], "~x"),
        ([Bare("~other/x")], "~other/x"),
        ([Bare("a~")], "a~"),
        (["", Bare("~")], "~"),
    ],
)
def test_a_tilde_in_front_is_the_home_directory(keeper: FormKeeper, word: Word, meant: str) -> None:
    done = keeper.run(form(run("echo", word)), env={"HOME": "/ho*me"})

    assert done.stdout == f"{meant}\n"


# Status.


@pytest.mark.parametrize(
    ("wanted", "status", "output"),
    [
        (form(run("yes"), run("head", "-1")), 0, "y\n"),
        (form(Group(form(run("yes"))), run("head", "-1")), 0, "y\n"),
        (form(Group(then(run("yes"), "&&", run("true"))), run("head", "-1")), 0, "y\n"),
        (form(run("false"), run("cat")), 1, ""),
        (form(sh("exit 3"), sh("exit 4"), run("true")), 3, ""),
        (form(run("true"), sh("exit 5")), 5, ""),
        (form(sh("kill -PIPE $$")), -signal.SIGPIPE, ""),
        (form(run("true"), sh("kill -PIPE $$")), 128 + signal.SIGPIPE, ""),
        (then(run("true"), "&&", sh("kill -KILL $$"), run("echo")), 128 + signal.SIGKILL, ""),
        (form(sh("kill -TERM $$"), run("cat")), 128 + signal.SIGTERM, ""),
        (then(run("false"), "&&", run("echo", "no")), 1, ""),
        (then(run("true"), "||", run("echo", "no")), 0, ""),
        (Form(Pipeline([run("false")]), [("&&", Pipeline([run("echo", "a")])), ("||", Pipeline([run("echo", "b")]))]), 0, "b\n"),
        (Form(Pipeline([run("true")]), [("||", Pipeline([run("echo", "a")])), ("&&", Pipeline([run("echo", "b")]))]), 0, "b\n"),
        (form(Group(form(sh("exit 6")))), 6, ""),
        (then(Group(form(sh("exit 6"))), "||", run("echo", "b")), 0, "b\n"),
        (form(run("echo", "c"), run("tr", "c", "d"), run("tr", "d", "e")), 0, "e\n"),
        (form(run(":")), 0, ""),
        (form(run(":", "x"), run("cat")), 0, ""),
    ],
)  # fmt: skip
def test_the_status_of_a_form(keeper: FormKeeper, wanted: Form, status: int, output: str) -> None:
    done = keeper.run(wanted)

    assert (done.status, done.stdout) == (status, output)


def test_a_missing_program_has_status_127_and_does_not_stop_the_others(keeper: FormKeeper) -> None:
    done = keeper.run(form(run("no-such-program", "x"), sh("cat; echo other")))

    assert done == Done(127, "other\n", "bartack: the program 'no-such-program' was not found\n")


@pytest.mark.parametrize("name", ["data", "folder", "no-format"])
def test_what_cannot_be_executed_has_status_126(keeper: FormKeeper, tmp_path: Path, name: str) -> None:
    (tmp_path / "data").touch(0o644)
    (tmp_path / "folder").mkdir()
    (tmp_path / "no-format").write_text("echo from a shell\n")
    (tmp_path / "no-format").chmod(0o755)

    done = keeper.run(then(run(":"), "&&", run(f"./{name}")), tmp_path)

    assert (done.status, done.stdout) == (126, "")
    assert name in done.stderr


@pytest.mark.parametrize("word", ["", " ", "echo hi"])
def test_a_command_line_is_not_a_program(keeper: FormKeeper, word: str) -> None:
    assert keeper.run(then(run(":"), "&&", run(word))).status == 127


# Files.


@pytest.mark.parametrize(
    ("places", "file", "output"),
    [
        ([Redirect(1, ">", ["f"]), Duplicate(2, 1)], "out\nerr\n", ""),
        ([Duplicate(2, 1), Redirect(1, ">", ["f"])], "out\n", "err\n"),
        ([Redirect(2, ">", ["f"])], "err\n", "out\n"),
        ([Redirect(1, ">>", ["f"]), Redirect(2, ">>", ["f"])], "was here\nout\nerr\n", ""),
        ([Redirect(2, ">", ["f"]), Duplicate(1, 2)], "out\nerr\n", ""),
        ([Redirect(1, ">", ["other"]), Redirect(1, ">", ["f"])], "out\n", ""),
    ],
)
@pytest.mark.parametrize("grouped", [False, True])
def test_redirections_apply_from_left_to_right(
    keeper: FormKeeper,
    tmp_path: Path,
    places: list[Redirect | Duplicate],
    file: str,
    output: str,
    *,
    grouped: bool,
) -> None:
    (tmp_path / "f").write_text("was here\n")
    text = ["sh", "-c", "echo out; echo err >&2"]
    inner = form(run(*text))

    wanted = form(Group(inner, places)) if grouped else form(SimpleCommand(words(*text), redirects=places))
    done = keeper.run(wanted, tmp_path)

    assert ((tmp_path / "f").read_text(), done.stdout) == (file, output)


def test_a_file_is_read(keeper: FormKeeper, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")
    read = SimpleCommand(words("cat"), redirects=[Redirect(0, "<", ["f"])])

    assert keeper.run(form(read, run("tr", "c", "k")), tmp_path) == Done(0, "kontent")


@pytest.mark.parametrize("op", ["<", ">", ">>"])
@pytest.mark.parametrize("name", ["echo", ":", "cd", "group"])
def test_a_file_that_cannot_be_opened_is_status_1_and_nothing_starts(
    keeper: FormKeeper, op: Literal["<", ">", ">>"], name: str
) -> None:
    places: list[Redirect | Duplicate] = [Redirect(0 if op == "<" else 1, op, ["no/such/file"])]
    command = SimpleCommand(words(name, "/"), redirects=places)
    failing = Group(form(run("echo", "x")), places) if name == "group" else command

    done = keeper.run(then(failing, "||", run("echo", "behind")))

    assert (done.status, done.stdout) == (0, "behind\n")
    assert "no/such/file" in done.stderr


def test_input_is_empty_and_only_own_descriptors_are_open(keeper: FormKeeper) -> None:
    code = "import os, sys; print(repr(sys.stdin.read()), sorted(map(int, os.listdir('/dev/fd')))[:-1])"
    looking = run(sys.executable, "-I", "-S", "-c", code)

    for wanted in (then(run(":"), "&&", looking), form(Group(then(looking, "&&", run(":"))), run("cat"))):
        assert keeper.run(wanted).stdout == "'' [0, 1, 2]\n"


@ON_LINUX
def test_a_program_finds_signals_as_they_are_by_default(keeper: FormKeeper) -> None:
    lines = run("grep", "-E", "^Sig(Ign|Blk|Cgt)")

    done = keeper.run(form(run("cat", "/proc/self/status"), lines, run("cut", "-f2")))

    # The C library keeps 32 and 33 for itself: the process that runs these tests may pass them on.
    assert [int(mask, 16) & ~(0b11 << 31) for mask in done.stdout.split()] == [0, 0, 0]


# What needs no program.


def test_a_directory_lasts_until_the_end_of_its_form_or_group(keeper: FormKeeper, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    inside = Group(then(run("cd", "in"), "&&", run("pwd")))

    done = keeper.run(then(inside, "&&", run("pwd"), run("cd", "in"), run("pwd")), tmp_path)

    assert done.stdout.splitlines() == [f"{tmp_path}/in", str(tmp_path), f"{tmp_path}/in"]


def test_a_directory_is_not_changed_from_inside_a_pipeline(keeper: FormKeeper, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    done = keeper.run(
        Form(Pipeline([run("cd", "in"), run("cat")]), [("&&", Pipeline([run("pwd")]))]), tmp_path
    )

    assert done.stdout == f"{tmp_path}\n"


def test_a_missing_directory_is_status_1(keeper: FormKeeper) -> None:
    quiet = SimpleCommand(words("cd", "none"), redirects=[Redirect(2, ">", ["/dev/null"])])

    assert keeper.run(form(run("cd", "none"))).stderr == f"bartack: cd none: {os.strerror(errno.ENOENT)}\n"
    assert keeper.run(then(quiet, "||", run("echo", "x"))) == Done(0, "x\n")
    assert keeper.run(form(run("cd", "a", "b"))).status == 2


def test_a_command_without_a_program_gives_the_descriptors_back(keeper: FormKeeper, tmp_path: Path) -> None:
    writing = SimpleCommand(words(":"), redirects=[Redirect(1, ">", ["f"]), Redirect(2, ">", ["f"])])

    done = keeper.run(then(writing, "&&", sh("echo out; echo err >&2")), tmp_path)

    assert done == Done(0, "out\n", "err\n")


def test_a_command_is_found(keeper: FormKeeper) -> None:
    env = {"PATH": "/nowhere:/bin"}

    assert keeper.run(form(run("command", "-v", "sh")), env=env) == Done(0, "/bin/sh\n")
    assert keeper.run(form(run("command", "-v", "cd")), env=env) == Done(0, "cd\n")
    assert keeper.run(form(run("command", "-v", "no-such-program")), env=env) == Done(1, "")
    assert keeper.run(form(into("/dev/null", "command", "-v", "sh")), env=env) == Done(0, "")


def test_a_variable_is_set_for_its_command_only(keeper: FormKeeper) -> None:
    show = ("sh", "-c", 'echo "[$A$B]"')
    first = SimpleCommand(words(*show), env=[("A", ["1"]), ("B", [Bare("~/")])])

    done = keeper.run(then(first, "&&", run(*show)), env={"B": "b", "HOME": "/h"})

    assert done.stdout == "[1/h/]\n[b]\n"


# Ends.


@pytest.mark.parametrize(
    "wanted",
    [
        then(sh("sleep 1000 & echo ready; wait"), "||", run("echo", "behind")),
        then(sh("sleep 1000 & echo ready; wait"), "||", run("command", "-v", "sh")),
        form(Group(then(sh("sleep 1000 & echo ready; wait"), "||", run("echo", "behind"))), run("cat")),
        form(run("echo", captured(sh("sleep 1000 & echo ready >&2; wait")))),
    ],
    ids=["list", "without a program", "group", "capture"],
)
def test_a_form_that_is_ended_leaves_nothing_and_starts_nothing_more(
    keeper: FormKeeper, wanted: Form
) -> None:
    ours, theirs = os.pipe()
    token = keeper.start(wanted, keeper.place, theirs, theirs, os.environ)
    os.close(theirs)
    keeper.wait(Started)
    assert os.read(ours, 100) == b"ready\n"

    keeper.client.stop(token, 5.0)
    keeper.wait(Exited)
    gone = keeper.wait(Gone)

    assert os.read(ours, 100) == b""
    os.close(ours)
    assert (gone.survivors, descendants(keeper.client.program_pid)) == ([], [])


def test_killing_an_interpreter_takes_along_what_it_started(keeper: FormKeeper) -> None:
    ours, theirs = os.pipe()
    keeper.start(
        form(Group(then(sh("echo ready; exec sleep 1000"), "&&", run(":")))),
        keeper.place,
        theirs,
        theirs,
        os.environ,
    )
    os.close(theirs)
    pid = keeper.wait(Started).pids[0]
    assert os.read(ours, 100) == b"ready\n"

    os.kill(pid, signal.SIGKILL)

    assert keeper.wait(Exited).statuses == [-signal.SIGKILL]
    keeper.wait(Gone)
    assert os.read(ours, 100) == b""
    os.close(ours)
    assert descendants(keeper.client.program_pid) == []


@ON_LINUX
def test_nothing_of_a_form_outlives_its_keeper(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    with FormKeeper(tmp_path) as keeper:
        inner = Group(then(sh("echo ready; exec sleep 20"), "&&", run(":")))
        keeper.start(form(inner), tmp_path, theirs, theirs, os.environ)
        os.close(theirs)
        keeper.wait(Started)
        assert os.read(ours, 100) == b"ready\n"

        os.kill(keeper.client.pid, signal.SIGKILL)

    ready, _, _ = select.select([ours], [], [], 60.0)
    assert ready, "something still holds the output"
    assert os.read(ours, 100) == b""
    os.close(ours)


# The short way.


def test_one_program_with_exact_words_is_plain() -> None:
    command = SimpleCommand(words("make", ["a", Bare("b")], ["*"]), env=[("A", ["~"])])

    plain = plain_of(form(command))

    assert plain is not None
    assert (plain.argv, plain.env) == (["make", "ab", "*"], {"A": "~"})


@pytest.mark.parametrize(
    "wanted",
    [
        form(run("a"), run("b")),
        then(run("a"), "&&", run("b")),
        form(Group(form(run("a")))),
        form(into("f", "a")),
        form(run("ls", [Bare("*")])),
        form(run("ls", [Bare("~/x")])),
        form(run("ls", captured(run("a")))),
        form(SimpleCommand(words("a"), env=[("A", captured(run("b")))])),
        form(run("cd", "x")),
        form(run("command", "-v", "x")),
        form(run(":")),
        form(run()),
    ],
)
def test_everything_else_is_interpreted(wanted: Form) -> None:
    assert plain_of(wanted) is None
