"""The command line: parse, call, show. Everything it does is done by the packages below it.

``main`` is the entry point. It loads a command's module only when that command is called; read ``app/_app.py`` for the table of
commands and ``app/_boundary.py`` for what becomes of an error.
"""

from bartack.cli.app._boundary import main

__all__ = ["main"]
