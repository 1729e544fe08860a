"""For every code of the catalogue a program that gets it, and the same program without the mistake.

Data only: `bartack explain CODE` shows the programs, and a test checks and compiles all of them. What no file can show is
written between « and »: a byte, or a character many times over.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple


class Example(NamedTuple):
    """A program with a mistake, and one without it."""

    wrong: str
    right: str


@cache
def examples() -> dict[str, Example]:
    """The programs by the codes that the wrong ones get."""
    found: dict[str, Example] = {}
    for part in _PROGRAMS.split("#### PW")[1:]:
        number, _, text = part.partition("\n")
        wrong, _, right = text.partition("#### right\n")
        found[f"PW{number}"] = Example(wrong.strip("\n") + "\n", right.strip("\n") + "\n")
    return found


_PROGRAMS = r"""
#### PW100
print("caf«byte E9»")
#### right
print("café")
#### PW101
print(1 ^ 2)
#### right
print(1 + 2)
#### PW102
print("ready)
#### right
print("ready")
#### PW103
print(think {
    How many braces does { have?
})
#### right
print(think {
    How many braces does $'{' have?
})
#### PW104
print((1 + 2)
#### right
print((1 + 2))
#### PW105
var count 1
print(count)
#### right
var count = 1
print(count)
#### PW106
var ready = true
while ready {
    ready = false
}
else {
    print("never")
}
#### right
var ready = true
if ready {
    ready = false
} else {
    print("never")
}
#### PW107
print(.5)
#### right
print(0.5)
#### PW108
print("\u{110000}")
#### right
print("\u{1F642}")
#### PW109
print(«300 times (»1«300 times )»)
#### right
print(((1)))
#### PW110
# «4194304 times x»
print(1)
#### right
print(1)
#### PW111
var name = null
print(name ? name : "no name")
#### right
var name = null
print(name || "no name")
#### PW112
fun f(in) { return 1 }
print(f(2))
#### right
fun f(given) { return given }
print(f(2))
#### PW114
import "./tools.pw"
#### right
import std.log
log("ready")
#### PW115
{
    print(1)
}
print(2)
#### right
print(1)
print(2)
#### PW116
@timeout "long"
worker main() {
    $ make
}
#### right
@timeout 60000
worker main() {
    $ make
}
#### PW120
var branch = "main"
print(brnach, branch)
#### right
var branch = "main"
print(branch)
#### PW121
var name = "a"
var name = "b"
print(name)
#### right
var name = "a"
name = "b"
print(name)
#### PW122
print(total)
var total = 1
#### right
var total = 1
print(total)
#### PW123
len("text") = 4
#### right
var length = len("text")
print(length)
#### PW124
worker main() {
    print(self.name)
}
#### right
worker main() {
    print(self.path)
}
#### PW125
import ./missing
missing()
#### right
import std.log
log("ready")
#### PW126
import std
std.shout("hello")
#### right
import std
std.print("hello")
#### PW127
import ../../tools
tools()
#### right
import std
std.print("hello")
#### PW128
export default fun first() { return 1 }
export default fun second() { return 2 }
#### right
export default fun first() { return 1 }
export fun second() { return 2 }
#### PW129
skill review(file) { return file }
trait Helper: Agent {
    @skill review
    fun look(file) { return file }
}
#### right
skill review(file) { return file }
trait Helper: Agent {
    @skill look
    fun look(file) { return file }
}
#### PW130
worker main() {
    print(self)
}
#### right
worker main() {
    print(self.path)
}
#### PW131
fun f(x) {
    if x { break }
    return x
}
print(f(1))
#### right
fun f(x) {
    if x { return null }
    return x
}
print(f(1))
#### PW132
worker main() {
    var text = think {
        To stop:
        do { return 1 }
    }
    return text
}
#### right
worker main() {
    var text = think {
        To count:
        do { 1 + 1 }
    }
    return text
}
#### PW133
var names: list = ["a"]
print(names)
#### right
var names: [string] = ["a"]
print(names)
#### PW134
type Tree = Tree
fun f(tree: Tree) { return tree }
print(f([]))
#### right
type Tree = [Tree]
fun f(tree: Tree) { return tree }
print(f([]))
#### PW135
fun double(n) { return n * 2 }
var f = double
print(f)
#### right
fun double(n) { return n * 2 }
print([1, 2].map(double))
#### PW138
fun again(n) { restart(n + 1) }
worker main(n: int = 0) {
    if n < 3 { again(n) }
    return n
}
#### right
worker main(n: int = 0) {
    if n < 3 { restart(n + 1) }
    return n
}
#### PW139
worker main(task = "review") {
    if version("new-$task") { print("new") }
}
#### right
worker main(task = "review") {
    if version("new-review") { print("new", task) }
}
#### PW140
fun add(a, b) { return a + b }
print(add(1))
#### right
fun add(a, b) { return a + b }
print(add(1, 2))
#### PW141
var count: int = "three"
print(count)
#### right
var count: int = 3
print(count)
#### PW142
fun greet(greeting = "Hello", name) { return "$greeting, $name" }
print(greet("Hi", "Ada"))
#### right
fun greet(name, greeting = "Hello") { return "$greeting, $name" }
print(greet("Ada", "Hi"))
#### PW143
worker child() { return 1 }
worker main() {
    return self.delegate([child()], { on_error: "collect" })
}
#### right
worker child() { return 1 }
worker main() {
    return self.delegate([child()], { on_failure: "collect" })
}
#### PW144
fun count() { return 1 }
worker main() {
    return self.delegate([count()])
}
#### right
worker count() { return 1 }
worker main() {
    return self.delegate([count()])
}
#### PW145
worker main() {
    self.session.mailbox.tasks.send(self.inbox)
    return self.session.mailbox.tasks.receive()
}
#### right
worker main() {
    self.session.mailbox.tasks.send({ reply_to: self.path })
    return self.session.mailbox.tasks.receive()
}
#### PW146
print("text".uppercase())
#### right
print("text".upper())
#### PW150
$ sort <<< "b a"
#### right
write("words.txt", "b\na\n")
$ sort < words.txt
#### PW151
var name = "notes.txt"
$ bash -c "cat $name"
#### right
var name = "notes.txt"
$ cat $name
#### PW152
var files = ["a.txt", "b.txt"]
$ ls --all=$@{files}
#### right
var files = ["a.txt", "b.txt"]
$ ls --all $@{files}
#### PW153
$ export MODE=test
$ make
#### right
$ MODE=test make
#### PW154
$ make || throw "broken"
#### right
($ make) || throw "broken"
#### PW155
$ cd src; make
#### right
$ cd src && make
#### PW156
$ make &&
#### right
$ make && make test
#### PW157
$ make >
#### right
$ make > build.log
#### PW158
$ echo $1
#### right
$ echo ${args[0]}
#### PW170
fun helper() { return 1 }
#### right
fun main() { return 1 }
#### PW171
worker first() { return 1 }
worker second() { return 2 }
#### right
worker first() { return 1 }
worker second() { return 2 }
worker main() { return self.delegate([first(), second()]) }
#### PW172
print("ready")
worker main() { return 1 }
#### right
worker main() {
    print("ready")
    return 1
}
#### PW190
# No program is known that gets this code. If yours does, that is a defect of Bartack: report it.
print(1)
#### right
print(1)
#### PW200
var count = 1
if count = 1 { print("one") }
#### right
var count = 1
if count == 1 { print("one") }
#### PW201
var count = 1
print("ready")
#### right
var count = 1
print("ready", count)
#### PW202
import std.log
print("ready")
#### right
import std.log
log("ready")
#### PW203
fun f() {
    return 1
    print("never")
}
print(f())
#### right
fun f() {
    print("first")
    return 1
}
print(f())
#### PW204
print("a\.txt")
#### right
print("a\\.txt")
#### PW205
@timout 60000
worker main() {
    $ make
}
#### right
@timeout 60000
worker main() {
    $ make
}
#### PW206
trait Helper {
    fun look(file) { return file }
}
#### right
trait Helper: Agent {
    fun look(file) { return file }
}
#### PW207
fun len(x) { return x }
print(len("text"))
#### right
fun size(x) { return x.length }
print(size("text"))
#### PW208
var name = "a.txt"
print("$(name)", name)
#### right
var name = "a.txt"
print("$name")
#### PW209
if $(git diff --quiet) { print("clean") }
#### right
if ($ git diff --quiet) { print("clean") }
#### PW210
worker main() {
    self.session.mailbox.tasks.send("go")
}
#### right
worker main() {
    self.session.mailbox.tasks.send("go")
    return self.session.mailbox.tasks.receive()
}
#### PW211
worker main() {
    return self.session.mailbox.tasks.receive(5000)
}
#### right
worker main() {
    self.session.mailbox.tasks.send("go")
    return self.session.mailbox.tasks.receive(5000)
}
#### PW212
worker main() {
    self.session.mailbox.tasks.send({ kind: "note", text: "hello" })
    var { kind: "offer", text } = self.session.mailbox.tasks.receive()
    return text
}
#### right
worker main() {
    self.session.mailbox.tasks.send({ kind: "offer", text: "hello" })
    var { kind: "offer", text } = self.session.mailbox.tasks.receive()
    return text
}
#### PW213
var { type, text } = { type: "note", text: "hello" }
print(text)
#### right
var { type: "note", text } = { type: "note", text: "hello" }
print(text)
#### PW214
var n = 5
print(1 < n < 10)
#### right
var n = 5
print(1 < n && n < 10)
#### PW215
var n = 5
n + 1
print(n)
#### right
var n = 5
n = n + 1
print(n)
#### PW216
var user = { name: "Ada" }
print("Hello, $user.name")
#### right
var user = { name: "Ada" }
print("Hello, ${user.name}")
#### PW217
$ cd src
$ make
#### right
$ cd src && make
#### PW218
$ touch {a,b}.txt
#### right
$ touch a.txt b.txt
#### PW219
$ make || make clean && make
#### right
$ make || (make clean && make)
#### PW220
var name = "Ada"
$ python3 -c "print('$name')"
#### right
var name = "Ada"
$ python3 -c "import sys; print(sys.argv[1])" $name
#### PW221
var report = { ok: true }
cat(report) > "report.json"
#### right
var report = { ok: true }
write("report.json", report)
#### PW222
$ curl -H "token=9f86d081884c7d659a2feaa0c55ad015" example.org
#### right
var token = env("TOKEN")
$ curl -H "token=$token" example.org
#### PW223
print({ name: "a", name: "b" })
#### right
print({ name: "b" })
#### PW224
print(think { You may do { 1 + 1 } to count. })
#### right
print(think {
    To count:
    do { 1 + 1 }
})
#### PW225
var a = 1
var b = (a = 2)
print(a, b)
#### right
var a = 1
var b = 2
a = b
print(a, b)
#### PW226
worker child() { throw "no" }
worker main() {
    try {
        child()
    } catch e {
        print(e.message)
    }
}
#### right
worker child() { throw "no" }
worker main() {
    var outcomes = self.delegate([child()], { on_failure: "collect" })
    print(outcomes[0].error.message)
}
#### PW227
worker review(file) {
    think { Review $file. }
}
worker main() {
    return review("a.txt")
}
#### right
worker review(file) {
    return think { Review $file. }
}
worker main() {
    return review("a.txt")
}
#### PW290
task main() {
    print(1)
}
#### right
worker main() {
    print(1)
}
#### PW291
fail "no branch"
#### right
throw "no branch"
#### PW292
worker child(n) { return n }
worker main() {
    await task child(1), child(2)
}
#### right
worker child(n) { return n }
worker main() {
    self.delegate([child(1), child(2)])
}
#### PW293
var (a, b) = [1, 2]
print(a, b)
#### right
var [a, b] = [1, 2]
print(a, b)
#### PW294
worker child() { return 1 }
worker main() {
    return await child()
}
#### right
worker child() { return 1 }
worker main() {
    return child()
}
"""
