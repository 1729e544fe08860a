"""How fast Patchwork is read, checked, compiled and formatted, and how soon a program runs.

Run with ``python -m bench.language [--json] [--quick] [--rounds N] [--check]``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time, time
from typing import Final

from bartack.language import check, compile_program, has_errors, parse
from bartack.language.checking.modules import NotLoaded
from bartack.language.formatting.format import reformat
from bartack.runtime.program.inspect import probe
from bartack.runtime.protocol.probing import ProbeRequest
from bartack.runtime.worker_process.child import load_worker
from bartack.testing import run_worker
from bench._harness import OURS, Bench, Contestant, Race, main
from bench._report import Goal
from bench._runner import Sample

LINES: Final = 1_000
STATEMENTS: Final = 20_000
APPENDED: Final = 400_000
UNIQUE_ROWS: Final = 40_000
PART: Final = """\
# Reviews part @N@ of a change.
# @arg base where it starts
@timeout 60000
worker review_@N@(base: string, files: [string] = []): { ok: bool, reasons: [string] } {
    var box = self.session.mailbox
    var reasons = []
    for file in files {
        var lines = $(wc -l < $file).trim()
        if number(lines) > 400 && !file.ends_with(".lock") {
            reasons.push("$file has $lines lines")
        } else if ($ grep -q "debug" $file) {
            reasons.push("${file.upper()} still says debug")
        }
    }

    $ git diff --stat "$base"..HEAD -- $@{files} | tail -n 1 > summary_@N@.txt
    var verdict: { ok: bool, reasons: [string] } = think {
        Review these files since ${base}: $@{files}

          - be strict
          - say what is wrong, as JSON: {"ok": false, "reasons": ["…"]}

        do {
            read("summary_@N@.txt")
        }
    } || { ok: false, reasons: ["no reviewer answered"] }
    box.verdicts.send({ part: @N@, ok: verdict.ok, reasons: reasons.concat(verdict.reasons) })
    return { ok: verdict.ok && reasons.length == 0, reasons }
}

"""
MAIN: Final = """\
worker main() {
    return self.session.mailbox.verdicts.receive()
}
"""
CLOCK: Final = "time()\n"


def program() -> str:
    """A program of a thousand lines, as people write them."""
    parts = (LINES - MAIN.count("\n")) // PART.count("\n") + 1
    return "".join(PART.replace("@N@", str(n)) for n in range(parts)) + MAIN


def ms(directory: str, size: int, *, work: Callable[[str], object]) -> Sample:
    """Milliseconds of CPU that some work takes on a program of a thousand lines, the median."""
    text = program()
    assert not has_errors(parse(text, "main.pw").diagnostics)
    return Sample(value=median(_timed(lambda: work(text)) for _ in range(size)) * 1e3)


def _timed(work: Callable[[], object]) -> float:
    """Seconds of CPU: nothing here waits, and what else runs on the machine should not count."""
    began = process_time()
    work()
    return process_time() - began


def parse_text(text: str) -> object:
    """Parse a program of one file."""
    return parse(text, "main.pw")


def format_text(text: str) -> object:
    """Format a program of one file, and parse the result to compare them."""
    return reformat(text.replace(", ", ","), "main.pw")


def check_text(text: str) -> object:
    """Parse and check a program of one file."""
    return check(lambda path: text if path == "main.pw" else NotLoaded("missing"), "main.pw")


def compile_text(text: str) -> object:
    """Parse, check and compile a program of one file."""
    checked = check(lambda path: text if path == "main.pw" else NotLoaded("missing"), "main.pw")
    return compile_program(checked.program).codes


def growth(directory: str, size: int) -> Sample:
    """How many times as long a statement takes in a block of 20,000 as in one of 1,000, the median."""
    small, large = (_block(count) for count in (STATEMENTS // 20, STATEMENTS))
    found = [_timed(lambda: check_text(large)) / 20 / _middle(small) for _ in range(size)]
    return Sample(value=median(found))


def _block(statements: int) -> str:
    return "worker main() {\n" + '    print("line", 1 + 2)\n' * statements + "}\n"


def _middle(text: str) -> float:
    return median(_timed(lambda: check_text(text)) for _ in range(9))


APPENDS: Final = """\
worker main(count: int = 0) {
    var text = ""
    for i in 1...count {
        text += "line $i\\n"
    }
    return text.length
}
"""
UNIQUE: Final = """\
worker main(count: int = 0) {
    var rows = []
    for i in 1...count {
        rows.push({ id: i, name: "row $i" })
    }
    return rows.unique().length
}
"""


def growth_of_run(directory: str, size: int, *, program: str, most: int) -> Sample:
    """How many times as long one of many takes in a program as one of a twentieth, the median."""
    place = Path(directory) / "growth.pw"
    place.write_text(program, encoding="utf-8")
    worker = load_worker(probe(ProbeRequest(str(place), directory), Path(directory)).worker, directory)

    def per_one(count: int) -> float:
        return _timed(lambda: run_worker(worker(count))) / count

    return Sample(value=median(per_one(most) / per_one(most // 20) for _ in range(size)))


def growth_of_mailboxes(directory: str, size: int) -> Sample:
    """How many times as long a mailbox takes to check among 10,000 as among 500, the median."""
    small, large = (_mailboxes(count) for count in (STATEMENTS // 40, STATEMENTS // 2))
    found = [_timed(lambda: check_text(large)) / 20 / _middle(small) for _ in range(size)]
    return Sample(value=median(found))


def _mailboxes(count: int) -> str:
    sends = "".join(f"    self.session.mailbox.box_{n}.send({n})\n" for n in range(count))
    return f"worker main() {{\n{sends}}}\n"


def first_statement(directory: str, size: int) -> Sample:
    """Milliseconds from the start of ``bartack run`` to the first statement of the program, the median."""
    (Path(directory) / "clock.pw").write_text(CLOCK, encoding="utf-8")
    command = [sys.executable, "-m", "bartack", "run", "clock.pw"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    taken: list[float] = []
    for _ in range(size):
        began = time()
        done = subprocess.run(command, cwd=directory, env=env, capture_output=True, check=True)
        taken.append(float(done.stdout) - began * 1e3)
    return Sample(value=median(taken))


def _race(key: str, title: str, work: Callable[[str], object]) -> Race:
    return Race(
        key=key,
        title=f"{title} {LINES:,} lines, CPU",
        unit="ms",
        better="lower",
        contestants=(Contestant(key=OURS, label="bartack", measure=partial(ms, work=work), size=5, every=2),),
    )


def _growth_race(key: str, title: str, most: int, measure: Callable[..., Sample], **fixed: object) -> Race:
    """A race whose result is how much dearer one of many is than one of a twentieth of them."""
    if fixed:
        fixed["most"] = most
    return Race(
        key=key,
        title=f"{title} {most:,} to {most // 20:,}",
        unit="times",
        better="lower",
        contestants=(
            Contestant(key=OURS, label="bartack", measure=partial(measure, **fixed), size=3, every=4),
        ),
    )


BENCH: Final = Bench(
    name="language",
    title="Patchwork",
    races=(
        _race("parse", "parse", parse_text),
        _race("check", "parse and check", check_text),
        _race("compile", "parse, check and compile", compile_text),
        _race("format", "format and verify", format_text),
        Race(
            key="growth",
            title=f"a statement among {STATEMENTS:,} to one among {STATEMENTS // 20:,}",
            unit="times",
            better="lower",
            contestants=(Contestant(key=OURS, label="bartack", measure=growth, size=1, every=4),),
        ),
        _growth_race("append", "an append to a text of", APPENDED, growth_of_run, program=APPENDS),
        _growth_race("unique", "unique(): an object among", UNIQUE_ROWS, growth_of_run, program=UNIQUE),
        _growth_race("mailboxes", "check: a mailbox among", STATEMENTS // 2, growth_of_mailboxes),
        Race(
            key="first",
            title="bartack run, until the first statement runs",
            unit="ms",
            better="lower",
            contestants=(Contestant(key=OURS, label="bartack", measure=first_statement, size=5, every=2),),
        ),
    ),
    goals=(
        Goal(race="check", title="check of 1,000 lines", bound="at most", target=60.0, stretch=30.0),
        Goal(race="format", title="format of 1,000 lines", bound="at most", target=60.0, stretch=40.0),
        Goal(race="growth", title="a statement in a large block", bound="at most", target=1.25, stretch=1.1),
        Goal(race="append", title="an append to a long text", bound="at most", target=1.5, stretch=1.25),
        Goal(race="unique", title="an object of many in unique()", bound="at most", target=1.5, stretch=1.25),
        Goal(race="mailboxes", title="a mailbox of many", bound="at most", target=1.5, stretch=1.25),
    ),
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
