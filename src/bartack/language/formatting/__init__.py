"""The canonical form of a program, and the upgrade of old spellings.

Writes text from a syntax tree; it never changes what a program means, and reads no files. Start with ``format.py`` (what is
compared before anything is written), then ``_layout.py`` (what each node writes).
"""
