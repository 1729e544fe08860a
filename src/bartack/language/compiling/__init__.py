"""From a checked program to Python modules.

Takes what ``checking`` found out and makes Python syntax trees; it runs nothing, and programs with errors do not get here. Start
with ``_compile.py``, then ``_statements.py`` and ``_expressions.py``.
"""
