"""What can be known of a program before it runs: names, types, mailboxes, schemas.

Reads syntax trees and reports diagnostics; it neither parses nor compiles. Start with ``_check.py`` (in which order), then
``_walk.py`` (one walk over a module) and ``program.py`` (what it finds out).
"""
