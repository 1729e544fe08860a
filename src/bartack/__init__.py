"""Bartack runs teams of AI coding agents that never lose work.

Everything that happens in a run is in its journal before it is acknowledged, so whatever is killed goes on
where it was.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
