"""The one place that chooses between operating systems. Everything else in this package asks here."""

from __future__ import annotations

import sys

if sys.platform == "linux":
    from bartack.supervision import _linux as system
else:
    from bartack.supervision import _darwin as system

__all__ = ["system"]
