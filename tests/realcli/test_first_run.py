"""What a newcomer with Claude Code does first: ``bartack init``, ``bartack agents doctor``, ``bartack run``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from bartack.testing import ClaudeSandbox, ModelServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "claude-code"
WORDS = "def plural(word):\n    return word + 's'\n"
FIXED = "def plural(word):\n    return word + ('es' if word.endswith('s') else 's')\n"
MAKEFILE = "test:\n\tpython3 -c \"from words import plural; assert plural('bus') == 'buses'\"\n"
SPEC = "# Words\n\n## Status\n\nNothing.\n\n## Decisions\n\nNone.\n\n## Changelog\n\nNone.\n"


def reply(**event: object) -> dict[str, object]:
    return {"tools": [{"name": "StructuredOutput", "input": event}]}


SCRIPTS: dict[str, list[dict[str, object]]] = {
    "build": [
        {"tools": [{"name": "Write", "input": {"file_path": "{{cwd}}/words.py", "content": FIXED}}]},
        reply(event="builder.completed", payload={"tests": {"status": "pass"}}),
        {"text": "Done."},
    ],
    "review": [
        reply(event="review.completed", status="approved", payload={"findings": []}),
        {"text": "Done."},
    ],
    "spec": [reply(event="spec.no_changes_needed", payload={}), {"text": "Done."}],
}
RULES = {
    r"\bImplement this task": "build",
    r"\bReview the work": "review",
    r"\bKeep the spec true": "spec",
}


def test_three_commands_lead_to_a_finished_run(tmp_path: Path, claude: list[str], slot: int) -> None:
    del claude, slot
    with ModelServer(SCRIPTS, rules=RULES) as server, ClaudeSandbox(tmp_path / "box", server) as box:

        def bartack(*words: str) -> str:
            done = box.run([sys.executable, "-m", "bartack", *words], timeout_s=120)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout + done.stderr

        for name, content in (("words.py", WORDS), ("Makefile", MAKEFILE), ("SPEC.md", SPEC)):
            (box.work / name).write_text(content, encoding="utf-8")
        box.run(["git", "init", "-q", "."])

        written = bartack("init")
        checked = bartack("agents", "doctor")
        ran = bartack("run", "--goal", "Make the plural of bus right", "--no-input")

        assert "bartack agents doctor" in written
        assert "usable" in checked
        assert "not usable" not in checked
        assert "completed" in ran
        assert (box.work / "words.py").read_text(encoding="utf-8") == FIXED
        asked = [(request.script, request.step) for request in server.requests if request.script]
        assert asked == [("build", 0), ("build", 1), ("review", 0), ("spec", 0)]


def test_the_example_does_its_task(tmp_path: Path, claude: list[str], slot: int) -> None:
    del claude, slot
    with ModelServer(SCRIPTS, rules=RULES) as server, ClaudeSandbox(tmp_path / "box", server) as box:
        shutil.copytree(EXAMPLE, box.work, dirs_exist_ok=True)

        done = box.run([sys.executable, "-m", "bartack", "run", "--no-input"], timeout_s=120)

        assert done.returncode == 0, done.stdout + done.stderr
        assert (box.work / "words.py").read_text(encoding="utf-8") == FIXED
