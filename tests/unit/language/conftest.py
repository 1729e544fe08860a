"""What holds for the tests of the language."""

from __future__ import annotations

from bartack.language.syntax._depth import make_room

# Parsing makes room for deep programs. Hypothesis warns when that happens during a test, so it happens before.
make_room()
