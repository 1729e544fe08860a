"""A hub that needs a lease: ``python leased_hub.py DESCRIPTOR RUN_DIR WORKSPACE``."""

from __future__ import annotations

import sys

from bartack.runtime.hub.serve import Instructions, main

if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], None, Instructions(lease=int(sys.argv[1]))))
