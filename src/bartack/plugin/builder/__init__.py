"""Makes a plugin for Claude Code of a program: reads the program, renders files, puts them into a folder.

Start with ``_build.py``. A program becomes a ``PluginSource`` (``_source.py``) by ``_patchwork.py`` or ``_python.py``, the source
becomes files without I/O (``_render.py``, ``_bodies.py``), and ``_output.py`` replaces the folder as a whole.
"""
