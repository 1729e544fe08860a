"""The parts of a Patchwork program: source, syntax tree, diagnostics. Text in, values out.

Knows neither the grammar (``parsing``) nor the rules of names and types (``checking``). Start with ``_tree.py`` (the nodes) and
``_diagnostics.py`` (which part reports what).
"""
