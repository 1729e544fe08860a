"""The command line parses arguments, calls the packages below it and shows their results.

``main`` is the entry point. It loads a command's module only when that command is called. Read ``app/_app.py`` for the table of
commands and ``app/_boundary.py`` for error reporting.
"""

from bartack.cli.app._boundary import main

__all__ = ["main"]
