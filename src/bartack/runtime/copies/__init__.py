"""Copies of workspaces: the files of a run at one moment as one git commit, which another machine restores.

It knows files and git, and neither journals nor databases. Start with ``copies.py`` (what can be done) and ``values.py``; how
a tree is watched cheaply is in ``_watched.py``, how hostile trees are kept from writing elsewhere in ``_writer.py``.
"""
