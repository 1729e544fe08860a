"""The version of Bartack, where every package can read it without importing the whole."""

from __future__ import annotations

__version__ = "0.1.0"
