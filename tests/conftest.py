"""What holds for every test: a machine may be slow, and nobody's own settings may decide a result."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# The public suites assert, too; this must come before anybody imports them.
pytest.register_assert_rewrite("bartack.testing")

settings.register_profile("bartack", deadline=None, print_blob=True)
settings.load_profile("bartack")

for _name in [
    name
    for name in os.environ
    if (name.startswith("BARTACK_") and not name.startswith("BARTACK_CHAOS_"))
    or name in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
]:
    del os.environ[_name]
