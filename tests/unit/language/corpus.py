"""Programs that use all of the language, for tests that mutate them or compare what is made of them."""

from __future__ import annotations

PAIR = """\
#!/usr/bin/env bartack
# Two workers that talk.
import ./tools, ../lib/{words, lists}, std.log
import {Report, trim_all} from "./report"

type Kind = "offer" | "note" | null
export type Item = {
    kind: Kind,
    size?: int,
    "long name": [string],  # quoted keys are keys
}

worker asker(host: string = "localhost", tries: int = 3,): {ok: bool, at?: string} {
    self.session.mailbox.tasks.send({ action: "count", target: "notes.txt", tries })
    var {kind: "offer", n: int | null, type: "a"} = self.session.mailbox.results.receive(5000).await
    for i in 1...tries {
        if ($ ping -c1 $host) && i > 0 {
            return { ok: true, at: timestamp() }
        }
        # not yet
        else if i == tries { continue }
        else { break }
    }
    return { ok: false }
}

worker reader() {
    var task = self.session.mailbox.tasks.receive(10000).await
    var text = $(cat ${task.target} | head -n 5)
    self.session.mailbox.results.send({ file: task.target, lines: text.lines().length, ...task })
}
"""

REVIEW = """\
# Reviews a change.
# @arg base where it starts
@timeout 500
@agent careful
export default skill review(base) {
    var diff = $(git diff --stat "$base"..main -- . ':!docs')
    var verdict: {ok: bool, reasons: [string]} = think {
        Review this change since ${base}:

          - be strict, cost below $5
          - use a fence:
            ```json
            {"ok": true, "reasons": []}
            ```

        ${diff} and $@{names} and $(date +%F), a brace $'{'.
        do { $ make test }
        do {
            log("asked for ${base}")
            { files: list("*.py") }
        }
    } || ask { Is $base fine? } || { ok: false, reasons: [] }
    if !verdict.ok || verdict.reasons.length != 0 {
        throw "refused: " + verdict.reasons.join("; ")
    }
    cat(verdict) > "verdict.json"
    "done" >> 'log.txt'
    return json < "verdict.json"
}
"""

SHELL = """\
fun build(dir, flags: [string] = []) {
    $ mkdir -p $dir/out && cd $dir
    $ A=1 B="two $dir" env | sort -u > "$dir/env.txt" 2>&1  # keep it
    $ cc $@{flags} --out=$dir/x a"b c"d'e f' *.c \\
        v1^{commit} {} ~/lib \\*.h
    $ (false || true) < /dev/null 2> err; $ echo again;
    if $? != 0 { $ cat err >&2 }
    while $(git status --porcelain) { sleep(100) }
    for line in ($ ls -1) { print(line.trim(), line[0], line[-1]) }
    try { $ make -j4 all } catch e { throw e }
    try { unsafe_shell("true") } catch { succeed }
    var total = -1 + 2 * (3 - 4) % 5 / 6.5e-1
    total += xs[0].n; total++; o.k["x"] = [1, 2, ...more]
    return xs | wanted || "none" && !total
}
"""

TEAM = """\
trait Team: [Agent, Base] {
    # Does the work.
    @skill do_work
    @command("work")
    fun work(topic: string): string {
        var [first, _, {left, right}] = self.delegate([one(topic), two(topic, "é🙂")], { on_failure: "collect" })
        return "${first.value}: $topic\\n\\t\\u{1F642} \\$5 ${ {a: [1]}.a[0] }"
    }

    fun helper(f: fun(int, string) -> bool) { return }
}

@once fun later(a, b = a + 1) {
    assert(a <= b && b >= a && a != b || a == b, "order")
    return $(printf '%s\\n' "$(date)" ${a})
}
"""

OLD = """\
task first(self_) { fail "no " + self_ }
agent second() {
    var (a, _, b) = await task first(self, 1), second(self)
    var c = await task(first(self))
    spawn(first(self), second())
    await c.d()
    if a = 1 && (b = 2) { fail }
}
"""

SCRIPT = """\
# A script.
{
    var n = 0
    while n < 3 { n++ }
    print("n is $n")
    n
}
"""

PROGRAMS = {"pair": PAIR, "review": REVIEW, "shell": SHELL, "team": TEAM, "old": OLD, "script": SCRIPT}

TOKENS = (
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        '"',
        "'",
        "$",
        "$(",
        "${",
        "$@{",
        "($ ",
        "$?",
        "\n",
        "\n",
        "\n",
        " ",
        ";",
        ",",
    ),
    *(
        ".",
        "...",
        "..",
        "=",
        "==",
        "+=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "!",
        "<",
        ">",
        ">>",
        "|",
        "||",
        "&&",
        "&",
        "?",
        "->",
    ),
    *(
        "@",
        "#",
        "\\",
        "`",
        "^",
        "~",
        "é",
        "“",
        "界",
        "\t",
        "\r\n",
        "\r",
        "\u00a0",
        "a",
        "b",
        "x1",
        "_",
        "1",
        "1.5",
        "1.",
    ),
    *(
        ".5",
        "1e",
        "0x1",
        "worker",
        "fun",
        "task",
        "agent",
        "fail",
        "spawn",
        "await",
        "think",
        "ask",
        "do",
        "if",
        "else",
    ),
    *(
        "for",
        "while",
        "in",
        "var",
        "type",
        "import",
        "export",
        "default",
        "from",
        "try",
        "catch",
        "continue",
        "break",
    ),
    *(
        "return",
        "succeed",
        "throw",
        "self",
        "true",
        "null",
        "json",
        "cat",
        "trait",
        "skill",
        "./",
        "../",
        "$ ls",
    ),
    *(
        "2>&1",
        "<<EOF",
        "$'x'",
        "$x",
        "$1",
        "++",
        "--",
        ":",
        "think {",
        "do {",
        '"${',
        "\\u{12}",
        "\\u{",
        "\\\n",
        "}\n",
    ),
    *(
        "fun f() {\n",
        "\nfun g() {",
        "# c\n",
        "${x:-y}",
        "$ a; b",
        "{a,b}",
        "'''",
        "EOF\n",
        "f(",
        "[1,",
        "{a:",
        "array<",
    ),
)
"""Pieces of the language and of what is none, for random texts."""
