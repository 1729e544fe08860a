"""Texts for people: cut to a length."""

from __future__ import annotations


def cut(text: str, most: int) -> str:
    """A text of at most ``most`` characters; if it was longer, the last one is an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
