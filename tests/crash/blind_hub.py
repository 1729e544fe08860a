"""A hub that never looks around by itself.

``python blind_hub.py RUN_DIR WORKSPACE``
"""

from __future__ import annotations

import sys

from bartack.runtime.hub import hub as _hub
from bartack.runtime.hub.serve import main

if __name__ == "__main__":
    setattr(_hub, "LOOK_S", 3600.0)  # noqa: B010 - said so that nobody takes it for a constant
    sys.exit(main(sys.argv[1:]))
