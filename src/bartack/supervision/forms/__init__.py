"""Shell forms: pipelines, lists, groups and redirections that Bartack executes itself, without a shell.

``Form`` and what it is made of are plain data. The keeper calls ``form_main`` in a forked child with what ``pack_form`` made.
"""

from bartack.supervision.forms._form import (
    Bare,
    Capture,
    Duplicate,
    Form,
    Group,
    Part,
    Pipeline,
    Plain,
    Redirect,
    SimpleCommand,
    Word,
    iter_texts,
    plain_of,
)
from bartack.supervision.forms._interpreter import (
    CAPTURE_LIMIT,
    LIMIT_SIGNAL,
    form_main,
    pack_form,
    start_status,
)
from bartack.supervision.forms._shown import form_words, show_form

__all__ = [
    "CAPTURE_LIMIT",
    "LIMIT_SIGNAL",
    "Bare",
    "Capture",
    "Duplicate",
    "Form",
    "Group",
    "Part",
    "Pipeline",
    "Plain",
    "Redirect",
    "SimpleCommand",
    "Word",
    "form_main",
    "form_words",
    "iter_texts",
    "pack_form",
    "plain_of",
    "show_form",
    "start_status",
]
