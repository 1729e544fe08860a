"""A hub that needs a lease: ``python leased_hub.py DESCRIPTOR HOLD_S RUN_DIR WORKSPACE``."""

from __future__ import annotations

import sys

from bartack.runtime.hub.serve import Instructions, main

if __name__ == "__main__":
    sys.exit(main(sys.argv[3:], None, Instructions(lease=int(sys.argv[1]), hold_s=float(sys.argv[2]))))
