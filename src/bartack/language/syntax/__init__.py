"""The parts of a Patchwork program: source, syntax tree, diagnostics. Text in, values out."""
