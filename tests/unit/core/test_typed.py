"""Types are read for the first time in many threads at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bartack.core import typed

MANY = """
import sys, threading, types
import msgspec
from bartack.core import typed

sys.setswitchinterval(1e-6)
TEXT = "from __future__ import annotations\\nimport msgspec\\n"
TEXT += "".join(f"class Inner{n}(msgspec.Struct):\\n    a: int = 0\\n    b: str = ''\\n" for n in range(20))
TEXT += "class Outer(msgspec.Struct):\\n" + "".join(f"    f{n}: Inner{n} | None = None\\n" for n in range(20))


def read(kind, start, number):
    start.wait()
    typed.convert({"f19": {"a": 1}}, type=kind)
    typed.decode(b'{"f18": {"a": 1}}', type=kind)
    typed.decoder(kind).decode(b"{}")


for turn in range(60):
    module = types.ModuleType(f"made{turn}")
    sys.modules[module.__name__] = module
    exec(TEXT, module.__dict__)
    start = threading.Barrier(8)
    threads = [threading.Thread(target=read, args=(module.Outer, start, n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("read")
"""


def test_a_type_that_many_threads_use_for_the_first_time_does_not_crash_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr


def test_a_type_is_read_as_msgspec_reads_it() -> None:
    assert typed.decode(b'["a", "b"]', type=list[str]) == ["a", "b"]
    assert typed.convert("7", type=int, strict=False) == 7
    with pytest.raises(TypeError):
        typed.decoder(list[str] | set[str])
