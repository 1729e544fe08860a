"""The command line: parse, call, show. Everything it does is done by the packages below it.

``main`` is the entry point. It loads a command's module only when that command is called; read ``_app.py`` for the table of
commands and ``_boundary.py`` for what becomes of an error.
"""

from bartack.cli._boundary import main

__all__ = ["main"]
