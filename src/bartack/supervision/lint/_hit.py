"""A place that a rule of the lint found."""

from __future__ import annotations

import ast
from typing import NamedTuple


class Hit(NamedTuple):
    """A place that a rule found."""

    node: ast.expr | ast.ExceptHandler
    type: str
    message: str
    suggestion: str
