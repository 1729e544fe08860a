"""How the errors that people make most are shown: where they are, what is meant, and what to do."""

from __future__ import annotations

import pytest

from bartack.language import check
from bartack.language.checking.modules import NotLoaded
from bartack.language.syntax.render import render

SHOWN = {
    "an unclosed brace in a prompt": (
        {
            "main.pw": (
                "worker main() {\n"
                "    var plan = think {\n"
                '        Write JSON like { "a": 1\n'
                "    }\n"
                "    return plan\n"
                "}\n"
            ),
        },
        (
            "error[PW103]: this `{` of `think` is never closed; a lone brace in text is written `$'{'`\n"
            " --> main.pw:2:22\n"
            "  |\n"
            "2 |     var plan = think {\n"
            "  |                      ^\n"
            '3 |         Write JSON like { "a": 1\n'
            "  |                         - this brace has none of its own\n"
        ),
    ),
    "one equals sign in a condition": (
        {
            "main.pw": ('var tries = 3\nif tries = 3 {\n    print("enough")\n}\n'),
        },
        (
            "warning[PW200]: `=` in a condition compares; write `==`\n"
            " --> main.pw:2:10\n"
            "  |\n"
            "2 | if tries = 3 {\n"
            "  |          ^\n"
        ),
    ),
    "an unknown variable with a near name": (
        {
            "flows/release.pw": (
                'worker release(branch) {\n    $ git push origin $brnach\n    print("pushed $branch")\n}\n'
            ),
        },
        (
            "error[PW120]: `brnach` is not defined\n"
            " --> flows/release.pw:2:23\n"
            "  |\n"
            "2 |     $ git push origin $brnach\n"
            "  |                       ^^^^^^^ did you mean `branch`?\n"
            "  |\n"
            '  = help: to read an environment variable write `env("brnach")`\n'
        ),
    ),
    "a mailbox that is sent to but never read": (
        {
            "main.pw": ("worker main() {\n    self.session.mailbox.reports.send({ done: true })\n}\n"),
        },
        (
            "warning[PW210]: mailbox `reports` is sent to but never received from\n"
            " --> main.pw:2:5\n"
            "  |\n"
            "2 |     self.session.mailbox.reports.send({ done: true })\n"
            "  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
            "  |\n"
            "  = help: some worker must call `self.session.mailbox.reports.receive()`\n"
        ),
    ),
    "a mailbox whose name is nearly that of another": (
        {
            "main.pw": (
                "worker main() {\n"
                '    self.session.mailbox["to-do"].send(1)\n'
                '    return self.session.mailbox["to-dos"].receive()\n'
                "}\n"
            ),
        },
        (
            "warning[PW210]: mailbox `to-do` is sent to but never received from\n"
            " --> main.pw:2:5\n"
            "  |\n"
            '2 |     self.session.mailbox["to-do"].send(1)\n'
            "  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ did you mean `to-dos`?\n"
            "  |\n"
            '  = help: some worker must call `self.session.mailbox["to-do"].receive()`\n'
            "warning[PW211]: mailbox `to-dos` is received from but never sent to\n"
            " --> main.pw:3:12\n"
            "  |\n"
            '3 |     return self.session.mailbox["to-dos"].receive()\n'
            "  |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ did you mean `to-do`?\n"
            "  |\n"
            '  = help: some worker must call `self.session.mailbox["to-dos"].send(…)`\n'
        ),
    ),
    "a delegate of something else than a worker": (
        {
            "main.pw": (
                "fun review(file) { return think { Review $file. } }\n"
                "worker main() {\n"
                '    return self.delegate([review("a.py"), review("b.py")])\n'
                "}\n"
            ),
        },
        (
            "error[PW144]: only workers can be delegated\n"
            " --> main.pw:3:27\n"
            "  |\n"
            '3 |     return self.delegate([review("a.py"), review("b.py")])\n'
            "  |                           ^^^^^^^^^^^^^^ `review` is a fun; declare it as `worker`\n"
            "error[PW144]: only workers can be delegated\n"
            " --> main.pw:3:43\n"
            "  |\n"
            '3 |     return self.delegate([review("a.py"), review("b.py")])\n'
            "  |                                           ^^^^^^^^^^^^^^ `review` is a fun; declare it as `worker`\n"
        ),
    ),
    "a wrong number of arguments": (
        {
            "main.pw": (
                "worker review(file, depth) { return [file, depth] }\n"
                "worker main() {\n"
                '    return review("a.py")\n'
                "}\n"
            ),
        },
        (
            "error[PW140]: `review` takes 2 arguments, 1 given\n"
            " --> main.pw:3:18\n"
            "  |\n"
            "1 | worker review(file, depth) { return [file, depth] }\n"
            "  |        ------ declared here\n"
            "...\n"
            '3 |     return review("a.py")\n'
            "  |                  ^^^^^^^^\n"
            "  |\n"
            "  = help: write `review(file, depth)`\n"
        ),
    ),
    "a missing module": (
        {
            "main.pw": ('import ./lib/helpers\n\nprint(helpers.greet("you"))\n'),
        },
        (
            "error[PW125]: module `lib/helpers` not found; looked at lib/helpers.pw\n"
            " --> main.pw:1:14\n"
            "  |\n"
            "1 | import ./lib/helpers\n"
            "  |              ^^^^^^^ imported here\n"
            "  |\n"
            "  = help: write the path from the directory of this file, without `.pw`\n"
        ),
    ),
    "an import cycle through a script": (
        {
            "main.pw": ('import ./lib\n\nexport fun name() { return "you" }\nprint(lib.greet())\n'),
            "lib.pw": ('import ./main\n\nexport fun greet() { return "hello " + main.name() }\n'),
        },
        (
            "error[PW115]: an imported module may only declare\n"
            " --> main.pw:4:1\n"
            "  |\n"
            "4 | print(lib.greet())\n"
            "  | ^^^^^^^^^^^^^^^^^^\n"
            " ::: lib.pw:1:10\n"
            "  |\n"
            "1 | import ./main\n"
            "  |          ---- imported here\n"
            "  |\n"
            "  = help: move the statements into a `fun` or worker, or what others need into a module of its own\n"
        ),
    ),
}


@pytest.mark.parametrize(("files", "shown"), SHOWN.values(), ids=SHOWN)
def test_the_errors_of_people_are_shown_with_place_and_advice(files: dict[str, str], shown: str) -> None:
    checked = check(lambda path: files.get(path, NotLoaded("missing")), next(iter(files)))
    sources = {module.path: module.source for module in checked.program.modules}

    assert "".join(f"{render(one, sources)}\n" for one in checked.diagnostics) == shown
