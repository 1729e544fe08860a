"""From text to a syntax tree: one grammar over one cursor.

Reports what the text alone can show to be wrong, and always makes a tree; names and types are left to ``checking``. Start with
``_parser.py``, which inherits from the parsers of statements, expressions, types, commands and text, down to ``_cursor.py``.
"""
