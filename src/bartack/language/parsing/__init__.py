"""From text to a syntax tree: one grammar over one cursor."""
