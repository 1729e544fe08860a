"""``python -m bartack`` is the command ``bartack``."""

from __future__ import annotations

import sys

from bartack.cli import main

if __name__ == "__main__":
    sys.exit(main())
